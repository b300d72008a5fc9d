#!/bin/bash
# The decoder on a card: tests/gpu/decode.sh OUT WHAT..., WHAT of make-SHAPE (0.6b, 1.7b, 4b, 8b, 8b-4 of four layers: a model of random weights for what follows),
# check, public, engines, time, turns (the kernel for few sessions beside that for any), chance,
# ablations (kernels/sm_90a/decode/ablations.cuh), soak-IDS, hold-SESSIONS (energy), kl-PROMPTS, lean-SESSIONS:POSITION,...
# Every part has a limit of its own
# and its log in OUT; the table comes last.
cd "$(dirname "$0")/../.." || exit 1
out=${1:?where logs go}
shift
shape=0.6b
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cuda=${CUDA_HOME:-/usr/local/cuda}
mkdir -p "$out"
{
    gcc -std=gnu11 -O2 -march=native -I. -I"$cuda/include" tests/gpu/test_decode.c -o "$work/test_decode" -L"$cuda/lib64" -Wl,-rpath,"$cuda/lib64" -lcudart -lm -lpthread &
    "$cuda/bin/nvcc" -std=c++17 -O3 -gencode=arch=compute_90a,code=sm_90a -I. -fatbin kernels/decode.cu -o "$work/kernels.fatbin" &
    wait
} > "$out/build.log" 2>&1
nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | tee "$out/card.log"
test_decode() { timeout 150 "$work/test_decode" "$1" "$work/model" "$work/kernels.fatbin" "${@:2}"; }
# Watts of the card while texts are made, the first second left out.
hold() {
    nvidia-smi --query-gpu=power.draw --format=csv,noheader,nounits -lms 100 > "$work/power" &
    local power=$!
    test_decode hold 6 "$1"
    kill $power
    awk 'NR > 10 && $1 > 0 {n++; w[n] = $1; if ($1 > most) most = $1} END {for (i = 1; i <= n; i++) if (w[i] > 0.7 * most) {m++; s += w[i]}
        printf "%.0f W of %d looks\n", s / m, m}' "$work/power"
}
# Without one idea of the kernel after the other, ids a second at the seed's positions and beyond; as it is first and last.
ablations() {
    local names=("as it is" "grid barriers" "no prefetch" "norms as a step" "keys not shared out") i
    for i in 1 2 3 4; do
        "$cuda/bin/nvcc" -std=c++17 -O3 -gencode=arch=compute_90a,code=sm_90a -I. -DDECODE_ABLATION="$i" -fatbin kernels/decode.cu \
            -o "$work/ablation$i" &
    done
    wait
    cp "$work/kernels.fatbin" "$work/ablation0"
    for i in 0 1 2 3 4 0; do
        timeout 40 "$work/test_decode" time "$work/model" "$work/ablation$i" 1 100 1000 4000 > "$work/times" 2>&1 ||
            echo "not ok ${names[i]}"
        sed "s/^/${names[i]}: /" "$work/times"
    done
}
part() {
    case $1 in
    ablations) ablations ;;
    make-*)
        shape=${1#make-}
        rm -rf "$work/model"
        mkdir -p "$work/model"
        timeout 200 "$work/test_decode" make "$work/model" "$shape"
        ;;
    soak-*) test_decode soak "${1#soak-}" ;;
    hold-*) hold "${1#hold-}" ;;
    kl-*)
        test_decode dump "$work/logits" "${1#kl-}" && timeout 150 python3 tests/gpu/decode_check.py "$work/model" "$work/logits" "${1#kl-}"
        rm -f "$work/logits"
        ;;
    lean-*) timeout 100 python3 tests/gpu/decode_lean.py "$shape" "${1#lean-}" ;;
    *) test_decode "$1" ;;
    esac
}
for what in "$@"; do
    began=$(date +%s.%N)
    [[ $what == make-* ]] && shape=${what#make-}
    part "$what" > "$out/$shape-$what.log" 2>&1
    echo "$shape $what: exit $?, $(awk "BEGIN{printf \"%.1f\", $(date +%s.%N) - $began}") s" | tee -a "$out/parts.log"
done
tail -n 3 "$out/build.log"
echo "---- table"
cat "$out/parts.log"
grep -H "^not ok\|test_decode:" "$out"/*.log | sed 's|.*/||' | cut -c1-200 | head -30
echo "$(cat "$out"/*.log | grep -c '^ok') ok"
for log in "$out"/*-public.log "$out"/*-kl-*.log "$out"/*-soak-*.log "$out"/*-hold-*.log "$out"/*-engines.log "$out"/*-lean-*.log \
    "$out"/*-time.log "$out"/*-turns.log "$out"/*-chance.log "$out"/*-ablations.log; do
    [ -s "$log" ] && echo "# $(basename "$log" .log)" && grep -v "^ok" "$log" | tail -n 40 | cut -c1-170
done
! grep -q "^not ok" "$out"/*.log && ! grep -qv ": exit 0," "$out/parts.log"
