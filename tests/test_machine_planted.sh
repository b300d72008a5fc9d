#!/usr/bin/env bash
# Faults that the machine model's tests plant in the kernels (tests/machine/plant): while none is planted the kernels are what they are without
# the table, instruction by instruction of LLVM's. No code is run.
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
compiler=${CLANG:-clang}++ optimiser=$("${CLANG:-clang}" -print-prog-name=opt)
here=$PWD

# lowered DIR KERNEL: DIR/kernels/KERNEL.cu with what changes no meaning taken out
lowered() {
    (cd "$1" && "$compiler" -std=c++17 -O1 -Xclang -disable-llvm-passes -ffp-contract=off -w "-I$here/tests/machine/include" -femulated-tls \
        -fno-exceptions -fdiscard-value-names '-DDECODE_ABLATION=ablation()' -include "$here/tests/machine/planted_ranges.h" \
        -include "$here/tests/machine/ptx.h" -x c++ -c -emit-llvm "kernels/$2.cu" -o -) |
        "$optimiser" -S -discard-value-names -passes='function(sroa,instcombine,simplifycfg,early-cse,instcombine,simplifycfg)' -o -
}
# planted TABLE FAULT: kernels with one fault of a table in all launches; 0: with none
planted() {
    tests/machine/plant "$1" "$scratch/planted" && find "$scratch/planted/kernels" -type f -exec \
        sed -i -E "s/planted\($2\)/1/g; s/planted\([0-9]+\)/0/g" {} +
}
guarded() { # TABLE KERNEL
    local table=tests/machine/$1
    lowered . "$2" >"$scratch/without" && planted "$table" 0 && lowered "$scratch/planted" "$2" >"$scratch/none" &&
        planted "$table" 1 && lowered "$scratch/planted" "$2" >"$scratch/first" &&
        [ "$(wc -l <"$scratch/without")" -gt 10000 ] && diff "$scratch/none" "$scratch/without" &&
        ! cmp -s "$scratch/first" "$scratch/without"
}
refused() { # WHY LINE...: a table of these lines
    local why=$1
    shift
    printf '%s\n' "$@" >"$scratch/table"
    ! tests/machine/plant "$scratch/table" "$scratch/planted" 2>"$scratch/refused" && grep -qF "$why" "$scratch/refused"
}

run_tile='@ sm_90a/latency/kernels.cuh void latency_run_tile' product='latency_gemm_tile<ROWS, KINDS>(self, tile, slot);'
check "an edit that is there without its fault is refused" refused "is there without the fault" '= a: b' "$run_tile" \
    "- if (latency_is_product(tile.kind)) $product" "+ $product"
check "an if that takes an else is refused" refused "takes the else behind it" '= a: b' "$run_tile" \
    "- if (latency_is_product(tile.kind)) $product" "+ if (latency_is_product(tile.kind)) if (!PLANTED) $product"
check "a line that is not there is refused" refused "no line" '= a: b' "$run_tile" '- latency_nothing();' '+ if (!PLANTED) latency_nothing();'
check "a file that is not there is refused" refused "there is no sm_90a/nothing.cuh" '= a: b' '@ sm_90a/nothing.cuh a' '- b' '+ PLANTED'
for table in planted_ranges:megavit planted_blackwell:megavit_blackwell planted_decode:decode; do
    kernel=${table#*:} table=${table%:*}.txt
    name="with none of $table's faults $kernel.cu is the same code, with the first it is another"
    if [ -x "$optimiser" ] && "$compiler" --version >/dev/null; then
        check "$name" guarded "$table" "$kernel"
    else
        skip "$name" "there is no clang, or no opt"
    fi
done
echo "1..$number"
