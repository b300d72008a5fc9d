#!/bin/bash
# Prompts on a card: tests/gpu/prompts.sh OUT SHAPE..., SHAPE of test_decode make, or qwen3-vl-2b, -4b, -8b: a picture and 32 ids beside
# transformers, which takes KERNELS with the towers' (qwen3-vl-2b-check: without times of transformers). Every part has a limit of its own
# and its log in OUT; the table comes last. KERNELS: a fatbin that is there already (without it the decoder's alone is made); LIMIT: seconds
# behind which no part begins.
cd "$(dirname "$0")/../.." || exit 1
out=${1:?where logs go}
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cuda=${CUDA_HOME:-/usr/local/cuda}
mkdir -p "$out"
{
    for test in test_decode test_prompt; do
        gcc -std=gnu11 -O2 -march=native -I. -I"$cuda/include" tests/gpu/$test.c -o "$work/$test" -L"$cuda/lib64" -Wl,-rpath,"$cuda/lib64" \
            -lcudart -lm -lpthread &
    done
    if [ -n "$KERNELS" ]; then cp "$KERNELS" "$work/kernels.fatbin"
    else "$cuda/bin/nvcc" -std=c++17 -O3 -gencode=arch=compute_90a,code=sm_90a -I. -fatbin kernels/decode.cu -o "$work/kernels.fatbin" & fi
    wait
} > "$out/build.log" 2>&1
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | tee "$out/card.log"
part() { # NAME LIMIT COMMAND...
    local name=$1 limit=$2 began
    [ "$SECONDS" -gt "${LIMIT:-100000}" ] && return
    began=$(date +%s.%N)
    shift 2
    timeout "$limit" "$@" > "$out/$name.log" 2>&1
    echo "$name: exit $?, $(awk "BEGIN{printf \"%.1f\", $(date +%s.%N) - $began}") s" | tee -a "$out/parts.log"
}
for shape in "$@"; do
    rm -rf "$work/model"
    mkdir -p "$work/model"
    if [[ $shape == qwen3-vl-* ]]; then
        what=time
        [[ $shape == *-check ]] && what=check
        part "$shape-make" 150 python3 tests/gpu/pictures.py make "$work/model" "${shape%-check}"
        part "$shape-picture" 60 "$work/test_prompt" picture "$work/model" "$work/kernels.fatbin" "$work/logits"
        part "$shape-transformers" 180 python3 tests/gpu/pictures.py "$what" "$work/model" "$work/logits"
        continue
    fi
    part "$shape-make" 150 "$work/test_decode" make "$work/model" "$shape"
    part "$shape-check" 150 "$work/test_prompt" check "$work/model" "$work/kernels.fatbin"
    part "$shape-time" 60 "$work/test_prompt" time "$work/model" "$work/kernels.fatbin"
    part "$shape-logits" 60 "$work/test_prompt" logits "$work/model" "$work/kernels.fatbin" "$work/logits"
    part "$shape-transformers" 120 python3 tests/gpu/prompts.py "$work/model" "$work/logits"
done
echo "---- table"
cat "$out/parts.log"
grep -h "^not ok\|test_prompt:\|Error" "$out"/*.log | head -20
echo "$(cat "$out"/*-check.log | grep -c '^ok') ok"
for log in "$out"/*-check.log "$out"/*-time.log "$out"/*-picture.log "$out"/*-transformers.log; do
    [ -s "$log" ] || continue
    echo "# $(basename "$log" .log)"
    grep -v "^ok.*same bits" "$log" | tail -25 | cut -c1-170
done
! grep -q "^not ok" "$out"/*.log && ! grep -qv ": exit 0," "$out/parts.log"
