#!/usr/bin/env bash
# A Qwen3-VL whole on the machine model: the tower's kernel, the prompt's, the decoder's, beside the CPU.
exec "$(dirname "$0")/machine/run" test_talking
