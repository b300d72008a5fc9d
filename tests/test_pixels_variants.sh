#!/usr/bin/env bash
# tests/test_pixels_variants.sh: the tests of pixels and image processors again, compiled in ways that must not change a bit.
#
# A product that is fused with the sum behind it is not rounded by itself, and a resize whose weights were made of such ones is no longer
# Pillow's to the bit. Plain C and vector code give the same bytes.
cd "$(dirname "$0")/.." || exit 1
out=${BUILD:-build}/tests/pixels_variants
mkdir -p "$out"
number=0

passes() { # NUMBER TEST FLAGS...
    local program=$out/$1.$2 test=$2
    shift 2
    ${CC:-gcc} -std=c99 -D_POSIX_C_SOURCE=200809L -DMEGAVIT_NO_CUDA -DMEGAVIT_STATIC -w -I. "$@" "tests/$test.c" -o "$program" -lcmocka -lpthread -lm &&
        "$program" >"$program.log" 2>&1
}
report() { # NUMBER NAME FLAGS...
    local number=$1 name=$2
    shift 2
    if passes "$number" test_pixels "$@" && passes "$number" test_processors "$@"; then
        echo "ok $number - $name"
    else
        echo "not ok $number - $name"
        grep -hE '^not ok|FAILED|error' -A 3 "$out/$number".*.log 2>/dev/null | sed 's/^/# /' | head -20
    fi >"$out/$number.said"
}
# variant NAME FLAGS...: two at a time; what they said comes at the end
variant() {
    number=$((number + 1))
    rm -f "$out/$number".*
    while (($(jobs -rp | wc -l) >= 2)); do wait -n; done
    report "$number" "$@" &
}
skip() { # NAME WHY
    number=$((number + 1))
    echo "ok $number - $1 # SKIP $2" >"$out/$number.said"
}

echo "1..4"
variant "plain C gives the same pixels" -O2 -DMEGAVIT_NO_SIMD
variant "without optimisation the pixels are the same" -O0
if grep -qw fma /proc/cpuinfo 2>/dev/null; then
    variant "fused products do not change the pixels" -O3 -mfma -ffp-contract=fast
else
    skip "fused products do not change the pixels" "this machine has no FMA"
fi
if ${CC:-gcc} -mfpmath=387 -fsyntax-only -x c - </dev/null 2>/dev/null; then # as 32-bit x86 does; gnu99 keeps more digits than c99
    variant "more digits than double has do not change the pixels" -O2 -mfpmath=387 -std=gnu99
else
    skip "more digits than double has do not change the pixels" "this compiler has no x87"
fi
wait
for ((i = 1; i <= number; i++)); do cat "$out/$i.said"; done
! grep -q '^not ok' "$out"/*.said
