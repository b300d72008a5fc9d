#!/usr/bin/env bash
# tile.sh FILE [SEED]: builds tile_card.cu with nvcc for this machine's Blackwell card (ARCHITECTURE=103a or 110a where it is no 100a) and
# records what its tensor cores do in every case of tile.h. tile.py FILE says whether that is what the manual says.
set -e
program=${TMPDIR:-/tmp}/megavit_tile architecture=${ARCHITECTURE:-100a}
nvcc -std=c++17 -O2 -gencode "arch=compute_$architecture,code=sm_$architecture" "$(dirname "$0")/tile_card.cu" -o "$program"
rm -f "$1"
failed=0
for ((i = 0; i < $("$program"); i++)); do "$program" "$1" "$i" "${2:-0}" || failed=1; done
exit $failed
