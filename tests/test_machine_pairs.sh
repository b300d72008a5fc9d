#!/usr/bin/env bash
# Pairs of CTAs on Blackwell on the machine model (tests/machine/README.md).
exec "$(dirname "$0")/machine/run" test_pairs
