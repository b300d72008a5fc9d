#!/usr/bin/env bash
# A family that was added as CONTRIBUTING.md says (tests/toy), its plan and the real kernel on the machine model, in the brief way of
# test_machine_encoder.sh.
exec "$(dirname "$0")/machine/run" test_toy toy 100
