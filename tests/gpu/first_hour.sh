#!/usr/bin/env bash
# shellcheck disable=SC2317 # functions that bash -c calls
# first_hour.sh [FILE [SECONDS]]: for whoever has a Blackwell card, which nobody here had; it runs on a Hopper card, too. Builds the kernels
# for the card, records its primitives and compares them with what the machine model was made from (copies, barriers, clusters, wgmma: a
# Hopper card's recording; tcgen05: what NumPy makes of the PTX manual, as the model is), asks the card for every operation of SigLIP2-base
# against the CPU, in each precision that it has, times the encode in each, runs the engine's tests and says what MXFP8 costs. Goes on
# where something fails, and leaves one file to send back (first_hour.tar.gz). SECONDS: of all of it; what there is no time for is left
# out, and said to be.
# Needs nvcc 13.0 (NVCC=FILE) and the toolkit in CUDA_HOME; a model in GPU_MODEL, or python3 with transformers to make one (PYTHON=FILE);
# NumPy for the primitives of tcgen05.
# FATBIN=FILE: kernels that are built already.
file=$(realpath -m "${1:-first_hour.tar.gz}") until=$((SECONDS + ${2:-7200}))
cd "$(dirname "$0")/../.." || exit 1
cuda=${CUDA_HOME:-/usr/local/cuda} python=${PYTHON:-python3} out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
export LD_LIBRARY_PATH=$cuda/lib64:$LD_LIBRARY_PATH PATH=$cuda/bin:$PATH
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1)
[ -n "$capability" ] || { echo "first_hour.sh: nvidia-smi sees no card" >&2; exit 1; }
case $capability in
9.0 | 10.0 | 10.3 | 11.0) ;;
*) echo "first_hour.sh: this card is of compute capability $capability; kernels are for 9.0, 10.0, 10.3, 11.0" >&2; exit 1 ;;
esac
architecture=${capability/./}a model=${GPU_MODEL:-build/gpu/model} precisions=auto
[ "$architecture" = 90a ] || precisions="bf16 mxfp8 mixed fc1+fc2"

step() { # name, seconds at most, command
    local name=$1 seconds=$2 from=$SECONDS status said
    shift 2
    [ $((until - SECONDS)) -gt "$seconds" ] || seconds=$((until - SECONDS))
    if [ "$seconds" -lt 5 ]; then
        said="left out: there is no time"
    else
        timeout -k 10 "$seconds" "$@" >"$out/$name.txt" 2>&1
        status=$?
        case $status in
        0) said=ok ;;
        124 | 137) said="stopped after $seconds s" ;;
        *) said="FAILED ($status): $(grep -v '^ *$' "$out/$name.txt" | tail -1 | cut -c1-150)" ;;
        esac
    fi
    echo "$name: $said, $((SECONDS - from)) s" | tee -a "$out/summary.txt"
}
primitives() { ARCHITECTURE=$architecture tests/machine/record.sh "$out/recorded" tests/machine/recorded/h200.bin; }
tiles() {
    local recorded=0
    ARCHITECTURE=$architecture tests/machine/tile.sh "$out/tiles" || recorded=1
    "$python" tests/machine/tile.py "$out/tiles" && return "$recorded"
}
# Everything that is compiled, and the model, beside the primitives; with what came before the failure in the log.
build() {
    if [ -n "$FATBIN" ]; then
        mkdir -p build && cp "$FATBIN" build/first_hour.fatbin && mv build/first_hour.fatbin build/megavit.fatbin && rm -f build/megavit_kernels.h
    fi
    make kernels KERNEL_ARCHITECTURES="$architecture" || return
    mkdir -p build/cuda && cp build/megavit.fatbin build/cuda/megavit.fatbin || return # where programs with CUDA look: not compiled twice
    local jobs=() status=0 settings=(-j"$(nproc)" CUDA_HOME="$cuda" KERNEL_ARCHITECTURES="$architecture")
    make "${settings[@]}" build/cuda/megavit CUDA="$cuda" & jobs+=($!)
    make "${settings[@]}" build/gpu/test_engine build/precision build/precision-floor & jobs+=($!)
    make "$model" PYTHON="$python" & jobs+=($!)
    for job in "${jobs[@]}"; do wait "$job" || status=1; done
    return $status
}
costs() {
    build/precision "$model" && build/precision-floor "$model"
}
export -f primitives tiles build costs
export out architecture model python cuda

echo "compute capability $capability, megavit $(sed -n 's/^#define MGV_VERSION "\(.*\)"/\1/p' megavit.h), $(git log -1 --format=%h 2>/dev/null)" | tee "$out/summary.txt"
step card 60 nvidia-smi -q
step build 3600 bash -c build &
building=$!
step primitives 300 bash -c primitives
[ "$architecture" = 90a ] || step tiles 300 bash -c tiles
wait "$building"
for precision in $precisions; do
    step "validate_$precision" 900 build/cuda/megavit validate --model "$model" --precision "$precision" --threads "$(nproc)"
    step "bench_$precision" 600 build/cuda/megavit bench --model "$model" --backend cuda --precision "$precision" --batch 1,8,64,592 \
        --json "$out/bench_$precision.json"
done
step test_gpu 1800 make test-gpu CUDA_HOME="$cuda" KERNEL_ARCHITECTURES="$architecture" GPU_MODEL="$model" PYTHON="$python"
step precision 1200 bash -c costs
tar czf "$file" -C "$out" .
cat "$out/summary.txt"
echo "$file holds everything; please send it back"
! grep -qE ': (FAILED|stopped)' "$out/summary.txt"
