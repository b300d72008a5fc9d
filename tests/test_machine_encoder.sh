#!/usr/bin/env bash
# The real kernel on the machine model (tests/machine/README.md), with numbers: half of what `make test-machine` does, where every
# shape runs on grids of all sizes. Its other shares run beside it: test_machine_order.sh and test_machine_watchdog.sh.
exec "$(dirname "$0")/machine/run" test_encoder numbers 100
