#!/usr/bin/env bash
# The machine model itself: recordings of a GPU, small kernels, planted faults (tests/machine/README.md).
exec "$(dirname "$0")/machine/run" test_machine
