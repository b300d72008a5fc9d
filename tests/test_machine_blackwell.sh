#!/usr/bin/env bash
# Blackwell's tensor cores on the machine model, and their constants (tests/machine/README.md).
exec "$(dirname "$0")/machine/run" test_blackwell
