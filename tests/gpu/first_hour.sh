#!/usr/bin/env bash
# first_hour.sh [FILE]: for whoever has a Blackwell card, which nobody here had; it runs on a Hopper card, too. Builds the kernels for the
# card, records its primitives (Hopper), asks it for every operation of SigLIP2-base against the CPU, runs the engine's tests, times the
# encode and says what MXFP8 would cost. Goes on where something fails, and leaves one file to send back (first_hour.tar.gz).
# Needs nvcc 13.0 (NVCC=FILE) and the toolkit in CUDA_HOME; a model in GPU_MODEL, or python3 with transformers to make one.
cd "$(dirname "$0")/../.." || exit 1
file=${1:-first_hour.tar.gz} cuda=${CUDA_HOME:-/usr/local/cuda} out=$(mktemp -d) failed=0
capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1)
architecture=${capability/./}a model=${GPU_MODEL:-build/gpu/model}
export LD_LIBRARY_PATH=$cuda/lib64:$LD_LIBRARY_PATH PATH=$cuda/bin:$PATH
[ -n "$capability" ] || { echo "first_hour.sh: nvidia-smi sees no card" >&2; exit 1; }

step() { # name, seconds at most, command
    local name=$1 seconds=$2 from=$SECONDS status
    shift 2
    timeout "$seconds" "$@" >"$out/$name.txt" 2>&1
    status=$?
    [ $status = 0 ] || failed=1
    echo "$name: $([ $status = 0 ] && echo ok || echo "FAILED ($status)"), $((SECONDS - from)) s" | tee -a "$out/summary.txt"
}

echo "compute capability $capability, megavit $(sed -n 's/^#define MGV_VERSION "\(.*\)"/\1/p' megavit.h), $(git log -1 --format=%h 2>/dev/null)" | tee "$out/summary.txt"
step card 60 nvidia-smi -q
step kernels 1800 make kernels KERNEL_ARCHITECTURES="$architecture"
step program 900 make build/cuda/megavit CUDA="$cuda"
step model 600 make "$model"
step devices 60 build/cuda/megavit devices
[ "$architecture" = 90a ] && step primitives 600 tests/machine/record.sh "$out/recorded"
step validate 900 build/cuda/megavit validate --model "$model" --threads "$(nproc)"
step bench 900 build/cuda/megavit bench --model "$model" --backend cuda --batch 1,8,64,592 --json "$out/bench.json"
step test_gpu 1800 make test-gpu KERNEL_ARCHITECTURES="$architecture" GPU_MODEL="$model"
step precision 1200 bash -c 'make build/precision build/precision-floor && build/precision "$0" && build/precision-floor "$0"' "$model"
tar czf "$file" -C "$out" . && rm -r "$out"
echo "$file holds everything; please send it back"
exit $failed
