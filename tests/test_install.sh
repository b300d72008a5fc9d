#!/usr/bin/env bash
# The man page, the completion and `make uninstall`; the README's program. Speaks TAP.
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
prefix=$scratch/prefix
page=$prefix/share/man/man1/megavit.1

check "make install" make --no-print-directory install BUILD="$build" PREFIX="$prefix"

every_word_of_the_help_is_on_the_page() {
    local command option missing=0
    for command in $("$prefix/bin/megavit" --help | sed -n 's/^  \([a-z]*\) .*/\1/p'); do
        grep -q "$command" "$page" || { echo "no $command"; missing=1; }
        for option in $("$prefix/bin/megavit" "$command" --help 2>/dev/null | sed -n 's/^  \(-[-a-z0-9]*\).*/\1/p'); do
            grep -qF -- "${option//-/\\-}" "$page" || { echo "no $option"; missing=1; }
        done
    done
    grep -q '^.TH MEGAVIT 1 "[0-9-]*" "megavit [0-9.]*"' "$page" && [ "$missing" = 0 ]
}
check "the man page has every command and option of --help" every_word_of_the_help_is_on_the_page
if command -v man >/dev/null && man --version 2>/dev/null | grep -q man; then
    check "man shows the page without a warning" bash -c "[ -z \"\$(LC_ALL=C.UTF-8 MANROFFSEQ= man --warnings -l '$page' 2>&1 >/dev/null)\" ]"
else
    skip "man shows the page without a warning" "no man"
fi

# completes WANTED WORD...: what bash would offer for the last word has this one.
completes() {
    local wanted=$1
    shift
    # shellcheck disable=SC1091
    . "$prefix/share/bash-completion/completions/megavit"
    COMP_WORDS=("$prefix/bin/megavit" "$@") COMP_CWORD=$#
    _megavit
    printf '%s\n' "${COMPREPLY[@]}" | grep -qxF -- "$wanted"
}
check "commands are completed" completes search se
check "options are completed" completes --threshold search --th
check "words of options are completed" completes cuda embed --backend c
offers_nothing_else() { completes search se && [ "${#COMPREPLY[@]}" = 1 ]; }
check "nothing else is offered" offers_nothing_else

leaves_nothing() {
    touch "$prefix/share/pkgconfig/of_another.pc"
    make --no-print-directory uninstall PREFIX="$prefix" && [ "$(cd "$prefix" && find . -type f)" = ./share/pkgconfig/of_another.pc ] &&
        [ ! -d "$prefix/share/cmake/megavit" ]
}
check "make uninstall takes away what install put there, and nothing else" leaves_nothing

# The block of C in the README, with what stands around it in a program.
readme_compiles() {
    awk '/^```c$/ { inside = 1; next } /^```/ { inside = 0 } inside' README.md >"$scratch/snippet"
    [ "$(wc -l <"$scratch/snippet")" -gt 20 ] || return 1
    {
        grep '^#' "$scratch/snippet"
        echo 'static unsigned char pixels[640 * 480 * 3]; static float embedding[768];'
        echo 'int main(void) {'
        echo '    mgv_error error;'
        grep -v '^#' "$scratch/snippet"
        echo '    return 0; }'
    } >"$scratch/readme.c"
    "${CC:-gcc}" -std=c99 -DMEGAVIT_NO_CUDA -Wall -Wextra -Werror -I. "$scratch/readme.c" -o "$scratch/readme" -lpthread -lm
}
check "the README's program compiles and links" readme_compiles

echo "1..$number"
