#!/usr/bin/env bash
# tests/test_contraction.sh: the pixel tests again, compiled so that the compiler may fuse every product with the sum behind it.
#
# A fused product is not rounded by itself, and a resize whose weights were made of such ones is no longer Pillow's to the bit.
cd "$(dirname "$0")/.." || exit 1
out=${BUILD:-build}/tests/contraction
mkdir -p "$out"
echo "1..1"
name="pixels are the same with -O3 -mfma -ffp-contract=fast"
if ! grep -qw fma /proc/cpuinfo 2>/dev/null; then
    echo "ok 1 - $name # SKIP this machine has no FMA"
    exit 0
fi
if ${CC:-gcc} -std=c99 -D_POSIX_C_SOURCE=200809L -DMEGAVIT_NO_CUDA -O3 -mfma -ffp-contract=fast -w -I. tests/test_pixels.c -o "$out/test_pixels" -lcmocka -lpthread -lm &&
    "$out/test_pixels" >"$out/log" 2>&1; then
    echo "ok 1 - $name"
else
    echo "not ok 1 - $name"
    grep '^not ok' -A 3 "$out/log" 2>/dev/null | sed 's/^/# /'
    exit 1
fi
