#!/usr/bin/env bash
# What `make install` and `make dist` give, and that a program builds from it through pkg-config and CMake. Speaks TAP.
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh

version=$(sed -n 's/^#define MGV_VERSION "\(.*\)"/\1/p' megavit.h)
prefix=$scratch/prefix
cat >"$scratch/program.c" <<'C'
#define MEGAVIT_IMPLEMENTATION
#include <megavit.h>
#include <string.h>
int main(void) { return strcmp(mgv_version(), MGV_VERSION) != 0; }
C

check "make install" make --no-print-directory install BUILD="$build" PREFIX="$prefix"
check "the installed command line runs" bash -c "'$prefix/bin/megavit' --version | grep -qx 'megavit $version'"
check "the command line builds with a packager's CFLAGS" make --no-print-directory BUILD="$scratch/O1" CFLAGS=-O1 "$scratch/O1/megavit"
check "DESTDIR goes before PREFIX" bash -c "
    make --no-print-directory install BUILD='$build' DESTDIR='$scratch/stage' PREFIX=/usr &&
    test -f '$scratch/stage/usr/include/megavit.h' && grep -qx 'prefix=/usr' '$scratch/stage/usr/lib/pkgconfig/megavit.pc'"

if command -v pkg-config >/dev/null; then
    # shellcheck disable=SC2016
    check "a program through pkg-config" env PKG_CONFIG_PATH="$prefix/lib/pkgconfig" bash -c '
        test "$(pkg-config --modversion megavit)" = "$2" &&
        gcc $(pkg-config --cflags megavit) "$1/program.c" -o "$1/by_pkg_config" $(pkg-config --libs megavit) && "$1/by_pkg_config"' _ "$scratch" "$version"
else
    skip "a program through pkg-config" "no pkg-config"
fi

# cmake_program NAME LINES: a project whose program is linked with megavit::megavit; LINES say where that comes from.
cmake_program() {
    mkdir -p "$scratch/$1"
    cp "$scratch/program.c" "$scratch/$1/"
    printf 'cmake_minimum_required(VERSION 3.13)\nproject(user C)\n%s\nadd_executable(program program.c)\ntarget_link_libraries(program megavit::megavit)\n' \
        "$2" >"$scratch/$1/CMakeLists.txt"
    cmake -S "$scratch/$1" -B "$scratch/$1/build" -DCMAKE_PREFIX_PATH="$prefix" && cmake --build "$scratch/$1/build" && "$scratch/$1/build/program"
}
refuses_version() { ! cmake_program "$1" "$2"; }
if command -v cmake >/dev/null; then
    check "a program through find_package" cmake_program found "find_package(megavit $version REQUIRED)"
    check "find_package refuses a version that is not this one" refuses_version wrong "find_package(megavit 9.9 REQUIRED)"
    check "a program through add_subdirectory" cmake_program sub "add_subdirectory($PWD megavit)"
    check "cmake --install puts the same files there" bash -c "
        cmake -S . -B '$scratch/cmake' -DCMAKE_INSTALL_PREFIX='$scratch/by_cmake' && cmake --install '$scratch/cmake' &&
        cmp megavit.h '$scratch/by_cmake/include/megavit.h' && test -f '$scratch/by_cmake/lib/pkgconfig/megavit.pc' &&
        diff -r '$prefix/lib/cmake' '$scratch/by_cmake/lib/cmake'"
else
    skip "a program through CMake" "no cmake"
fi

check "make dist holds what a user vendors" bash -c "
    make --no-print-directory dist BUILD='$scratch/dist' && tar -xzf '$scratch/dist/megavit-$version.tar.gz' -C '$scratch' &&
    cmp megavit.h '$scratch/megavit-$version/megavit.h' && test -f '$scratch/megavit-$version/LICENSE' && test -f '$scratch/megavit-$version/README.md'"

# The pair that a GPU program vendors: the header and the kernels, a plain C compiler and the CUDA runtime, nothing else.
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
vendors_pair() {
    mkdir -p "$scratch/pair" && make --no-print-directory kernels dist BUILD="$build" &&
        tar -xzf "$build/megavit-$version.tar.gz" -C "$scratch/pair" --strip-components=1 &&
        cp "$scratch/pair.c" "$scratch/pair/" &&
        cmp "$build/megavit.fatbin" "$scratch/pair/megavit.fatbin"
}
# builds_pair LIBRARIES: the program, and a run of it; without a GPU or a driver it says so and encodes on the CPU.
builds_pair() {
    # shellcheck disable=SC2086
    (cd "$scratch/pair" && gcc -std=c99 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Werror -isystem "$cuda/include" pair.c -o pair \
        -L"$cuda/lib64" $1 -lpthread -lm) &&
        LD_LIBRARY_PATH=$cuda/lib64 "$scratch/pair/pair" examples/model >"$scratch/pair/said" && cat "$scratch/pair/said" &&
        grep -qxE 'CUDA|CPU' "$scratch/pair/said" && { grep -qx CUDA "$scratch/pair/said" || grep -q '^the CPU encodes: ' "$scratch/pair/said"; }
}
if command -v "${NVCC:-nvcc}" >/dev/null && [ -f "$cuda/include/cuda_runtime_api.h" ]; then
    check "make kernels dist holds header and kernels" vendors_pair
    check "the pair with a plain C compiler and -lcudart" builds_pair -lcudart
    check "the pair with the static CUDA runtime" builds_pair "-lcudart_static -ldl -lrt"
else
    skip "the pair of header and kernels" "no CUDA toolkit"
fi
check "plain make says what there is" bash -c "make --no-print-directory | grep -q 'make test'"

echo "1..$number"
