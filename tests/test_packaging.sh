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
    test -f '$scratch/stage/usr/include/megavit.h' && grep -qx 'prefix=/usr' '$scratch/stage/usr/share/pkgconfig/megavit.pc'"
# Nothing is compiled, so neither stb nor sqlite is asked for, nor a compiler.
check "make install HEADER_ONLY=1 compiles nothing" bash -c "
    make --no-print-directory install HEADER_ONLY=1 CC=false BUILD='$scratch/none' PREFIX='$scratch/header' &&
    diff -r '$prefix/share/cmake' '$scratch/header/share/cmake' && cmp megavit.h '$scratch/header/include/megavit.h' && ! test -e '$scratch/header/bin'"

if command -v pkg-config >/dev/null; then
    # shellcheck disable=SC2016
    check "a program through pkg-config" env PKG_CONFIG_PATH="$prefix/share/pkgconfig" bash -c '
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
    check "a parent's install has nothing of ours" bash -c "
        cmake --install '$scratch/sub/build' --prefix '$scratch/parent' && ! find '$scratch/parent' -type f 2>/dev/null | grep ."
    check "unless it says so" bash -c "
        cmake -S '$scratch/sub' -B '$scratch/sub/build' -DMEGAVIT_INSTALL=ON && cmake --install '$scratch/sub/build' --prefix '$scratch/parent' &&
        cmp megavit.h '$scratch/parent/include/megavit.h'"
    check "cmake --install puts the same files there, under a prefix that it is told last" bash -c "
        cmake -S . -B '$scratch/cmake' -DCMAKE_INSTALL_PREFIX=/nowhere && cmake --install '$scratch/cmake' --prefix '$prefix.cmake' &&
        cmp megavit.h '$prefix.cmake/include/megavit.h' && diff -r '$prefix/share/cmake' '$prefix.cmake/share/cmake' &&
        diff <(sed 's|$prefix|&.cmake|' '$prefix/share/pkgconfig/megavit.pc') '$prefix.cmake/share/pkgconfig/megavit.pc'"
    check "directories of GNUInstallDirs are honoured" bash -c "
        cmake -S . -B '$scratch/dirs' -DCMAKE_INSTALL_INCLUDEDIR=include/vision -DCMAKE_INSTALL_DATADIR=usr/data &&
        cmake --install '$scratch/dirs' --prefix '$scratch/gnu' && cmp megavit.h '$scratch/gnu/include/vision/megavit.h' &&
        PKG_CONFIG_PATH='$scratch/gnu/usr/data/pkgconfig' pkg-config --cflags megavit | grep -F '$scratch/gnu/include/vision'"
    check "a program finds them there" cmake_program found_gnu "set(megavit_DIR $scratch/gnu/usr/data/cmake/megavit)
find_package(megavit REQUIRED)"
else
    skip "a program through CMake" "no cmake"
fi

# archive DIRECTORY OPTIONS: make dist, unpacked there.
archive() {
    mkdir -p "$1" && make --no-print-directory dist BUILD="$2" "${@:3}" && tar -xzf "$2/megavit-$version.tar.gz" -C "$1" --strip-components=1
}
# What a README says lies beside it, and what lies beside it it says; the files that only build systems read are not for people.
readme_is_true() {
    local said there
    said=$(grep -oE '`[A-Za-z_.]+\.(h|md|txt|fatbin)`|`LICENSE`' "$1/README.md" | tr -d '`' | sort -u)
    there=$(cd "$1" && ls -p | grep -vE '/$|^(README.md|CMakeLists.txt|meson.build|megavit.pc.in)$' | sort)
    diff <(echo "$said") <(echo "$there")
}
check "make dist HEADER_ONLY=1 holds what a user vendors" archive "$scratch/plain" "$scratch/dist" HEADER_ONLY=1
check "its header is this one" cmp megavit.h "$scratch/plain/megavit.h"
check "its README speaks of what is in it" readme_is_true "$scratch/plain"
check "its README's program" bash -c "
    cd '$scratch/plain' && sed 's|<megavit.h>|\"megavit.h\"|' ../program.c >program.c && \$(sed -n 's/^    \(cc .*program.c -lm.*\)/\1/p' README.md) && ./a.out"
check "make dist without nvcc is refused, and says what to do" bash -c "
    ! make --no-print-directory dist BUILD='$scratch/refused' NVCC=no-nvcc-here >'$scratch/why' 2>&1 && grep 'make nvcc' '$scratch/why' &&
    ! test -e '$scratch/refused/megavit-$version.tar.gz'"
if command -v cmake >/dev/null; then
    check "a program through FetchContent of the archive" cmake_program fetched "include(FetchContent)
FetchContent_Declare(megavit URL $scratch/dist/megavit-$version.tar.gz DOWNLOAD_EXTRACT_TIMESTAMP OFF)
FetchContent_MakeAvailable(megavit)"
fi

# meson_program NAME: as the archive's README says, the archive under subprojects/.
meson_program() {
    mkdir -p "$scratch/$1/subprojects" && cp -r "$scratch/plain" "$scratch/$1/subprojects/megavit" && cp "$scratch/program.c" "$scratch/$1/" &&
        printf "project('user', 'c')\nexecutable('program', 'program.c', dependencies: %s)\n" \
            "$(grep -oE "dependency\('megavit'.*\]\)" "$scratch/plain/README.md")" >"$scratch/$1/meson.build" &&
        meson setup "$scratch/$1/build" "$scratch/$1" && ninja -C "$scratch/$1/build" && "$scratch/$1/build/program"
}
if command -v meson >/dev/null && command -v ninja >/dev/null; then
    check "a program through meson, as the README says" meson_program meson
    check "meson installs nothing of ours" bash -c "
        meson install -C '$scratch/meson/build' --destdir '$scratch/meson/out' && ! find '$scratch/meson/out' -type f 2>/dev/null | grep ."
else
    skip "a program through meson, as the README says" "no meson or no ninja"
fi
meson_cmake_program() {
    mkdir -p "$scratch/$1/subprojects" && cp -r "$scratch/plain" "$scratch/$1/subprojects/megavit" && cp "$scratch/program.c" "$scratch/$1/" &&
        printf "project('user', 'c')\nsub = import('cmake').subproject('megavit')\nexecutable('program', 'program.c', dependencies: sub.dependency('megavit'))\n" \
            >"$scratch/$1/meson.build" && meson setup "$scratch/$1/build" "$scratch/$1" && ninja -C "$scratch/$1/build" && "$scratch/$1/build/program"
}
if command -v meson >/dev/null && command -v ninja >/dev/null && command -v cmake >/dev/null; then
    check "a program through meson's cmake module" meson_cmake_program meson_cmake
fi
check "meson.build has this version" grep -qF "version: '$version'" meson.build

# ---- the archive with kernels: a plain C compiler and the CUDA runtime, nothing else ----

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
check "plain make says what there is" bash -c "make --no-print-directory | grep -q 'make test'"

echo "1..$number"
