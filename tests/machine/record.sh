#!/usr/bin/env bash
# record.sh FILE: builds record.cu with nvcc and records what this machine's Hopper GPU does. The model's tests replay it.
set -e
program=${TMPDIR:-/tmp}/megavit_record
nvcc -std=c++17 -O2 -gencode arch=compute_90a,code=sm_90a "$(dirname "$0")/record.cu" -o "$program"
rm -f "$1"
"$program" "$1"
