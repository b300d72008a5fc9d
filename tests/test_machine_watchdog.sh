#!/usr/bin/env bash
# The real kernel on the machine model (tests/machine/README.md), with signals and arrivals that are lost, a fifth of what
# `make test-machine` loses, and given up while it is at work.
exec "$(dirname "$0")/machine/run" test_encoder watchdog 100
