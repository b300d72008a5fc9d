#!/usr/bin/env bash
# record.sh FILE [RECORDED]: builds record.cu with nvcc and records what this machine's GPU does; RECORDED: says which cases do not what was
# recorded there. The model's tests replay a Hopper card's. ARCHITECTURE=100a, 103a, 110a: Blackwell's cards, which have no wgmma.
set -e
program=${TMPDIR:-/tmp}/megavit_record architecture=${ARCHITECTURE:-90a} without=-DRECORD_WITHOUT_WGMMA
[ "$architecture" != 90a ] || without=
nvcc -std=c++17 -O2 $without -gencode "arch=compute_$architecture,code=sm_$architecture" "$(dirname "$0")/record.cu" -o "$program"
rm -f "$1"
"$program" "$@"
