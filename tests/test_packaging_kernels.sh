#!/usr/bin/env bash
# What `make dist` gives with kernels: a plain C compiler and the CUDA runtime build a program from it, and nothing else. Speaks TAP.
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
. tests/archive.sh

cuda=${CUDA_HOME:-/usr/local/cuda}
cat >"$scratch/pair.c" <<'C'
#define MEGAVIT_CUDA
#define MEGAVIT_KERNELS_HEADER "megavit_kernels.h"
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include <stdio.h>
static void say(void *user, int32_t level, const char *message) {
    (void)level;
    fprintf((FILE *)user, "%s\n", message);
}
int main(int argc, char **argv) {
    mgv_model_desc model_desc = {0};
    mgv_engine_desc desc = {0};
    mgv_model *model;
    mgv_engine *engine;
    mgv_error error;
    if (argc != 2) return 2;
    model_desc.path = argv[1];
    desc.logger.user = stdout;
    desc.logger.log = say;
    if (mgv_model_open(&model, &model_desc, &error) != MGV_OK || mgv_engine_create(&engine, model, &desc, &error) != MGV_OK) {
        puts(error.message);
        return 1;
    }
    puts(mgv_engine_backend(engine) == MGV_BACKEND_CUDA ? "CUDA" : "CPU");
    mgv_engine_destroy(engine);
    mgv_model_close(model);
    return 0;
}
C
# runs_pair COMMAND...: builds the program in the archive; without a GPU or a driver it says so and encodes on the CPU.
runs_pair() {
    (cd "$scratch/pair" && rm -f program && cp "$scratch/pair.c" program.c && "$@" -o program) &&
        LD_LIBRARY_PATH=$cuda/lib64 "$scratch/pair/program" examples/model >"$scratch/pair/log" && cat "$scratch/pair/log" &&
        grep -qxE 'CUDA|CPU' "$scratch/pair/log" && { grep -qx CUDA "$scratch/pair/log" || grep -q '^the CPU encodes: ' "$scratch/pair/log"; }
}
kernels_say() { # compiler and hash, and that the hash is right
    grep -qE '^compiler: nvcc, release [0-9.]+' "$scratch/pair/KERNELS.txt" && grep -qE '^checked:  whole' "$scratch/pair/KERNELS.txt" &&
        grep -qF "sha256:   $(sha256sum <"$scratch/pair/megavit.fatbin" | cut -d' ' -f1)" "$scratch/pair/KERNELS.txt"
}
refuses_other_kernels() { # a fatbin that is cut off, one whose bytes the header does not have
    head -c 100000 "$build/megavit.fatbin" >"$scratch/cut" && { head -c 5000 "$build/megavit.fatbin" && echo changed && tail -c +5009 "$build/megavit.fatbin"; } >"$scratch/other" &&
        ! "$build/check_kernels" "$scratch/cut" examples/model && ! "$build/check_kernels" "$scratch/other" examples/model
}
images_of() { # KERNEL_ARCHITECTURES and the images that are then built; unset: all four
    [ "$(make --no-print-directory -n -B BUILD="$scratch/subset" ${1:+KERNEL_ARCHITECTURES="$1"} "$scratch/subset/megavit.fatbin" |
        grep -oE 'code=sm_[0-9a-z]+' | sort | tr '\n' ' ')" = "$2" ]
}
check "KERNEL_ARCHITECTURES chooses the kernels' images" images_of "90a 103a" "code=sm_103a code=sm_90a "
check "which are all otherwise" images_of "" "code=sm_100a code=sm_103a code=sm_110a code=sm_90a "
plain="cc -std=c99 -D_POSIX_C_SOURCE=200809L -O1 -Wall -Wextra -Werror -I."
runtime=build/runtime/nvidia/cu13 # pip install --target build/runtime 'nvidia-cuda-runtime==13.0.*'
command -v "${NVCC:-nvcc}" >/dev/null && have_kernels=1 || have_kernels=
if [ -n "$have_kernels" ]; then
    check "make dist holds header and kernels" archive "$scratch/pair" "$build"
    check "KERNELS.txt states compiler and hash" kernels_say
    check "its README speaks of what is in it, kernels too" readme_is_true "$scratch/pair"
    check "kernels that are not whole or not the header's are refused" refuses_other_kernels
else
    skip "make dist holds header and kernels" "no nvcc"
fi
if [ -n "$have_kernels" ] && [ -f "$cuda/include/cuda_runtime_api.h" ] && [ -e "$cuda/lib64/libcudart.so" ]; then
    # shellcheck disable=SC2086
    check "a program with the toolkit's runtime" runs_pair $plain -isystem "$cuda/include" program.c -L"$cuda/lib64" -lcudart -lpthread -lm
else
    skip "a program with the toolkit's runtime" "no nvcc, or no CUDA toolkit"
fi
if [ -n "$have_kernels" ] && [ -d "$runtime" ]; then
    # as the archive's README has it
    ln -sfn "$PWD/build/runtime" "$scratch/pair/runtime"
    # shellcheck disable=SC2046
    check "a program with the runtime's wheel alone, as the README says" runs_pair $(sed -n 's/^    \(cc .*isystem.*\)/\1/p' "$scratch/pair/README.md")
    # shellcheck disable=SC2086
    check "and with its shared library" env LD_LIBRARY_PATH="$PWD/$runtime/lib" bash -c "$(declare -f runs_pair); scratch='$scratch' cuda=$runtime; runs_pair $plain -isystem runtime/nvidia/cu13/include program.c runtime/nvidia/cu13/lib/libcudart.so.13 -Wl,-rpath,'$PWD/$runtime/lib' -lpthread -lm"
else
    skip "a program with the runtime's wheel alone, as the README says" "no nvcc, or no wheel under build/runtime"
fi
echo "1..$number"
