#!/usr/bin/env bash
# The real kernel on the machine model (tests/machine/README.md), under a quarter of the orders that `make test-machine` runs it.
exec "$(dirname "$0")/machine/run" test_encoder order 50
