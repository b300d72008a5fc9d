#!/usr/bin/env bash
# The real kernel on the machine model (tests/machine/README.md), under many orders.
exec "$(dirname "$0")/machine/run" test_encoder order
