#!/usr/bin/env bash
# record.sh FILE: builds record.cu with nvcc and records what this machine's Hopper GPU does. The model's tests replay it.
set -e
cd "$(dirname "$0")"
nvcc -std=c++17 -O2 -gencode arch=compute_90a,code=sm_90a record.cu -o "${TMPDIR:-/tmp}/megavit_record"
rm -f "$1"
for ((i = 0; i < 27; i++)); do "${TMPDIR:-/tmp}/megavit_record" "$1" "$i"; done
