#!/usr/bin/env bash
# The decoder's kernel and host code on the machine model, beside the CPU.
exec "$(dirname "$0")/machine/run" test_decode
