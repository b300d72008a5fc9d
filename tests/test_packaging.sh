#!/usr/bin/env bash
# What `make install` and `make dist` give, and that a program builds from it through pkg-config and CMake. Speaks TAP.
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
. tests/archive.sh

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
# finds LIBRARIES: what make says when pkg-config finds no others; its own programs need not be there.
printf '#!/bin/sh\ncase "$1 $FOUND" in --exists\\ "$2") ;; --exists*) exit 1 ;; --modversion*) echo 1.2 ;; esac\n' >"$scratch/pkg-config"
chmod +x "$scratch/pkg-config"
finds() { FOUND=$1 make --no-print-directory BUILD="$scratch/found" PKG_CONFIG="$scratch/pkg-config" "$scratch/found/tools/decode.o"; }
compiled_anew() {
    ! finds "" | grep -e -DMEGAVIT_HEIF && finds libheif | grep -e -DMEGAVIT_HEIF && ! finds libheif | grep -e -c && finds "" | grep -e -c
}
check "a library for pictures that is installed or taken away since is seen" compiled_anew
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

check "plain make says what there is" bash -c "make --no-print-directory | grep -q 'make test'"

echo "1..$number"
