#!/usr/bin/env bash
# The shared library: its names, its soname, a program that finds it through pkg-config, and examples/python on it. Speaks TAP.
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
prefix=$scratch/prefix
version=$(sed -n 's/^#define MGV_VERSION "\(.*\)"/\1/p' megavit.h)

check "make lib" make --no-print-directory lib BUILD="$build"
check "make install" make --no-print-directory install BUILD="$build" PREFIX="$prefix"

exports_the_public_functions() {
    nm -D --defined-only "$build/libmegavit.so" | awk '{ print $3 }' | sort >"$scratch/exported"
    # what the preprocessor leaves of the header's declarations
    "${CC:-gcc}" -E -DMEGAVIT_NO_CUDA -DMEGAVIT_TEXT -DMEGAVIT_API=public_api -I. -x c megavit.h | tr '\n' ' ' | tr ';' '\n' |
        sed -n 's/.*public_api [^(]*[ *]\(mgv_[a-z0-9_]*\)(.*/\1/p' | sort -u >"$scratch/declared"
    [ "$(wc -l <"$scratch/declared")" -gt 50 ] && diff "$scratch/declared" "$scratch/exported"
}
check "it exports every public function and nothing else" exports_the_public_functions

named_by_its_version() {
    readelf -d "$prefix/lib/libmegavit.so.$version" | grep -q "soname: \[libmegavit.so.${version%.*}\]" &&
        [ "$(readlink -f "$prefix/lib/libmegavit.so.${version%.*}")" = "$(readlink -f "$prefix/lib/libmegavit.so")" ]
}
check "its soname is that of its minor version" named_by_its_version

# The header without its implementation, through pkg-config.
program_finds_it() {
    cat >"$scratch/program.c" <<'C'
#include <megavit.h>
#include <stdio.h>
#include <string.h>
int main(int argc, char **argv) {
    mgv_model_desc desc;
    mgv_model *model;
    mgv_model_info info;
    mgv_error error;
    memset(&desc, 0, sizeof desc);
    desc.path = argc > 1 ? argv[1] : "";
    if (mgv_model_open(&model, &desc, &error) != MGV_OK) return puts(error.message), 1;
    mgv_model_get_info(model, &info);
    mgv_model_close(model);
    return strcmp(mgv_version(), MGV_VERSION) != 0 || info.pooled_width == 0;
}
C
    # shellcheck disable=SC2046
    "${CC:-gcc}" $(PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config --cflags libmegavit) "$scratch/program.c" -o "$scratch/program" \
        $(PKG_CONFIG_PATH=$prefix/lib/pkgconfig pkg-config --libs libmegavit) &&
        LD_LIBRARY_PATH=$prefix/lib "$scratch/program" examples/model && ! LD_LIBRARY_PATH=$prefix/lib "$scratch/program" no_such_model
}
if command -v pkg-config >/dev/null; then check "a program finds it through pkg-config" program_finds_it
else skip "a program finds it through pkg-config" "no pkg-config"; fi

python=${PYTHON:-python3}
if "$python" -c 'import numpy' 2>/dev/null; then
    check "examples/python gives the command line's rows" env MEGAVIT_LIBRARY="$prefix/lib/libmegavit.so" "$python" tests/python_module.py "$build/megavit"
else
    skip "examples/python gives the command line's rows" "no python3 with numpy"
fi

echo "1..$number"
