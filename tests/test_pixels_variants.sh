#!/usr/bin/env bash
# tests/test_pixels_variants.sh: the tests of pixels and image processors again, compiled in ways that must not change a bit.
#
# A product that is fused with the sum behind it is not rounded by itself, and a resize whose weights were made of such ones is no longer
# Pillow's to the bit. Plain C and vector code give the same bytes.
cd "$(dirname "$0")/.." || exit 1
out=${BUILD:-build}/tests/pixels_variants
mkdir -p "$out"
number=0 failed=0

passes() { # TEST FLAGS...
    local test=$1
    shift
    ${CC:-gcc} -std=c99 -D_POSIX_C_SOURCE=200809L -DMEGAVIT_NO_CUDA -DMEGAVIT_STATIC -w -I. "$@" "tests/$test.c" -o "$out/$test" -lcmocka -lpthread -lm &&
        "$out/$test" >"$out/log" 2>&1
}
variant() { # NAME FLAGS...
    local name=$1
    shift
    number=$((number + 1))
    if passes test_pixels "$@" && passes test_processors "$@"; then
        echo "ok $number - $name"
    else
        echo "not ok $number - $name"
        grep -E '^not ok|FAILED|error' -A 3 "$out/log" 2>/dev/null | sed 's/^/# /' | head -20
        failed=1
    fi
}

echo "1..4"
variant "plain C gives the same pixels" -O2 -DMEGAVIT_NO_SIMD
variant "without optimisation the pixels are the same" -O0
if grep -qw fma /proc/cpuinfo 2>/dev/null; then
    variant "fused products do not change the pixels" -O3 -mfma -ffp-contract=fast
else
    echo "ok 3 - fused products do not change the pixels # SKIP this machine has no FMA"
fi
if ${CC:-gcc} -mfpmath=387 -fsyntax-only -x c - </dev/null 2>/dev/null; then # as 32-bit x86 does; gnu99 keeps more digits than c99
    variant "more digits than double has do not change the pixels" -O2 -mfpmath=387 -std=gnu99
else
    echo "ok 4 - more digits than double has do not change the pixels # SKIP this compiler has no x87"
fi
exit $failed
