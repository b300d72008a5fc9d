#!/usr/bin/env bash
# What a program that vendors megavit.h relies on: it compiles without a warning in every dialect and with every
# compiler that is here, links twice, keeps no writable global and calls nothing that a library must not call.
#
# Speaks TAP. A compiler that is absent is a skipped test, not a passed one.
cd "$(dirname "$0")/.." || exit 1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
number=0

# Results are kept in files, in the order of their numbers, and printed at the end.
report() {
    local number=$1 name=$2
    shift 2
    if "$@" >"$scratch/said.$number" 2>&1; then
        echo "ok $number - $name"
    else
        echo "not ok $number - $name"
        head -n 12 "$scratch/said.$number" | sed 's/^/# /'
    fi >"$scratch/result.$number"
}
# check NAME COMMAND...: one test; what the command said is shown when it failed.
check() {
    number=$((number + 1))
    report "$number" "$@"
}
# The same, beside what follows: two at a time.
check_beside() {
    number=$((number + 1))
    while (($(jobs -rp | wc -l) >= 2)); do wait -n; done
    report "$number" "$@" &
}
skip() {
    number=$((number + 1))
    echo "ok $number - $1 # SKIP $2" >"$scratch/result.$number"
}

common="-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wcast-qual -Werror -I."
c_only=-Wstrict-prototypes

cat >"$scratch/implementation.c" <<'C'
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
#include "megavit.h"
C
cat >"$scratch/declarations.c" <<'C'
#include "megavit.h"
const char *linked_version(void);
const char *linked_version(void) { return mgv_version(); }
C
cat >"$scratch/static_user.c" <<'C'
#define MEGAVIT_STATIC
#define MEGAVIT_IMPLEMENTATION
#include "megavit.h"
const char *USER(void);
const char *USER(void) { return mgv_version(); }
C
cat >"$scratch/main.c" <<'C'
#include <string.h>
#include "megavit.h"
const char *linked_version(void);
int main(void) { return strcmp(linked_version(), MGV_VERSION) != 0; }
C
cat >"$scratch/static_main.c" <<'C'
#include <string.h>
const char *first(void);
const char *second(void);
int main(void) { return strcmp(first(), second()) != 0; }
C
for file in implementation declarations static_user main; do cp "$scratch/$file.c" "$scratch/$file.cc"; done

# ---- every compiler, dialect and option that takes something away ----

# matrix LABEL C_COMPILER C++_COMPILER OPTIONS [MORE_C MORE_C++]: the implementation in the oldest dialects and the newest C++, and in more.
matrix() {
    local label=$1 cc=$2 cxx=$3 options=$4 more_c=${5:-} more_cxx=${6:-} probe=$scratch/probe
    printf '#include <errno.h>\n#include <math.h>\nint probe(void) { return EINVAL; }\n' >"$probe.c"
    # shellcheck disable=SC2086
    if ! command -v "$cc" >/dev/null || ! "$cc" $options -fsyntax-only "$probe.c" 2>/dev/null; then
        for dialect in c99 $more_c; do skip "$label as ${dialect^^}" "no $cc for it"; done
    else
        # shellcheck disable=SC2086
        for dialect in c99 $more_c; do
            check_beside "$label as ${dialect^^}" "$cc" -std=$dialect $options $common $c_only -Wno-unused-function -fsyntax-only "$scratch/implementation.c"
        done
    fi
    printf '#include <cstdlib>\nint probe() { return EXIT_SUCCESS; }\n' >"$probe.cc"
    # shellcheck disable=SC2086
    if ! command -v "$cxx" >/dev/null || ! "$cxx" $options -fsyntax-only "$probe.cc" 2>/dev/null; then
        for dialect in c++11 $more_cxx c++20; do skip "$label as ${dialect^^}" "no $cxx for it"; done
    else
        # shellcheck disable=SC2086
        for dialect in c++11 $more_cxx c++20; do
            check_beside "$label as ${dialect^^}" "$cxx" -std=$dialect $options $common -Wno-unused-function -fsyntax-only "$scratch/implementation.cc"
        done
    fi
}

# The toolkit's headers, or those of the machine model, which have what the header uses of them.
cuda=${CUDA_HOME:-/usr/local/cuda}/include
[ -e "$cuda/cuda_runtime_api.h" ] || cuda=tests/machine/include
for pair in gcc:g++ clang:clang++; do
    cc=${pair%:*} cxx=${pair#*:}
    matrix "$cc" "$cc" "$cxx" "-DMEGAVIT_NO_CUDA" c11 c++17
    matrix "$cc -m32" "$cc" "$cxx" "-DMEGAVIT_NO_CUDA -m32 -idirafter /usr/include/x86_64-linux-gnu"
    matrix "$cc MEGAVIT_NO_SIMD" "$cc" "$cxx" "-DMEGAVIT_NO_CUDA -DMEGAVIT_NO_SIMD"
    matrix "$cc MEGAVIT_NO_THREADS MEGAVIT_NO_BF16" "$cc" "$cxx" "-DMEGAVIT_NO_CUDA -DMEGAVIT_NO_THREADS -DMEGAVIT_NO_BF16"
    matrix "$cc MEGAVIT_NO_STDIO" "$cc" "$cxx" "-DMEGAVIT_NO_CUDA -DMEGAVIT_NO_STDIO"
    matrix "$cc MEGAVIT_PLAN" "$cc" "$cxx" "-DMEGAVIT_NO_CUDA -DMEGAVIT_PLAN"
    matrix "$cc MEGAVIT_TEXT" "$cc" "$cxx" "-DMEGAVIT_NO_CUDA -DMEGAVIT_TEXT"
    matrix "$cc with CUDA and MEGAVIT_TEXT" "$cc" "$cxx" "-DMEGAVIT_CUDA -DMEGAVIT_TEXT -isystem $cuda -DMEGAVIT_KERNELS_HEADER=\"tests/fake_kernels.h\""
done
matrix "gcc for ARM (NEON)" aarch64-linux-gnu-gcc aarch64-linux-gnu-g++ "-DMEGAVIT_NO_CUDA"
matrix "MinGW" x86_64-w64-mingw32-gcc x86_64-w64-mingw32-g++ "-DMEGAVIT_NO_CUDA"
check "g++ without exceptions and RTTI" \
    g++ -std=c++11 -fno-exceptions -fno-rtti -DMEGAVIT_NO_CUDA $common -Wno-unused-function -fsyntax-only "$scratch/implementation.cc"
check "gcc -O3 -ffast-math" gcc -std=c99 -O3 -ffast-math -DMEGAVIT_NO_CUDA $common -Wno-unused-function -c "$scratch/implementation.c" -o "$scratch/fast.o"

mkdir "$scratch/renamed"
cp megavit.h "$scratch/renamed/vit.h"
printf '#define MEGAVIT_IMPLEMENTATION\n#define MEGAVIT_FILENAME "vit.h"\n#include "vit.h"\n' >"$scratch/renamed/user.c"
check "under another name, with MEGAVIT_FILENAME" gcc -std=c99 -DMEGAVIT_NO_CUDA $common -Wno-unused-function -fsyntax-only "$scratch/renamed/user.c"


# What other headers and memory debuggers define: functions of the C library as macros, words that windows.h, X11 and others take.
cat >"$scratch/hostile.h" <<'C'
#include <complex.h>
#include <tgmath.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static inline void *debug_malloc(size_t bytes, int line) { (void)line; return (malloc)(bytes); }
static inline void debug_free(void *memory, int line) { (void)line; (free)(memory); }
static inline int debug_close(int file, int line) { (void)line; return (close)(file); }
static inline ssize_t debug_read(int file, void *to, size_t bytes, int line) { (void)line; return (read)(file, to, bytes); }
#define malloc(bytes) debug_malloc(bytes, __LINE__)
#define free(memory) debug_free(memory, __LINE__)
#define close(file) debug_close(file, __LINE__)
#define read(file, to, bytes) debug_read(file, to, bytes, __LINE__)
#define open(...) (open)(__VA_ARGS__)
#define alloc(bytes) debug_malloc(bytes, __LINE__)
#define run(command) system(command)
#define check(condition) (condition)
#define verify(condition) (condition)
#define require(condition) (condition)
#define min(a, b) ((a) < (b) ? (a) : (b))
#define max(a, b) ((a) > (b) ? (a) : (b))
#define small char
#define hyper long
#define interface struct
#define near
#define far
#define IN
#define OUT
#define ERROR 0
#define None 0L
#define Success 0
#define Bool int
#define Status int
C
for compiler in gcc clang; do
    for options in "-DMEGAVIT_NO_CUDA -DMEGAVIT_TEXT" "-DMEGAVIT_NO_CUDA -DMEGAVIT_NO_SIMD -DMEGAVIT_PLAN" "-DMEGAVIT_CUDA -isystem $cuda"; do
        if ! command -v $compiler >/dev/null; then
            skip "among the macros of others, $compiler $options" "no $compiler"
            continue
        fi
        # shellcheck disable=SC2086
        check_beside "among the macros of others, $compiler $options" $compiler -std=c11 -D_GNU_SOURCE $options $common $c_only \
            -Wno-unused-function -Wno-overlength-strings -include "$scratch/hostile.h" -fsyntax-only "$scratch/implementation.c"
    done
done
# Of what is compiled by gcc alone where tests are: with its own macros, and the other compiler's warnings.
for file in examples/*.c examples/*.cc tools/library.c; do
    [ "${file##*.}" = cc ] && other="clang++ -std=c++11" || other="clang -std=c99 -D_POSIX_C_SOURCE=200809L $c_only"
    if command -v "${other%% *}" >/dev/null; then
        # shellcheck disable=SC2086
        check_beside "$file by clang" $other -DMEGAVIT_NO_CUDA ${common/-Wcast-qual/} -fsyntax-only "$file"
    else
        skip "$file by clang" "no clang"
    fi
done
# static_declarations COMPILER EXTENSION DIALECT
static_declarations() {
    local file=$scratch/static_declarations.$2
    printf '#define MEGAVIT_STATIC\n#include "megavit.h"\nint nothing_else;\n' >"$file"
    # shellcheck disable=SC2086
    "$1" -std="$3" $common -c "$file" -o /dev/null || return 1
    printf '#define MEGAVIT_IMPLEMENTATION\n#include "megavit.h"\n' >>"$file" # what another header has declared before
    # shellcheck disable=SC2086
    "$1" -std="$3" -DMEGAVIT_NO_CUDA $common -fsyntax-only "$file" || return 1
    # shellcheck disable=SC2086
    "$1" -std="$3" -DMEGAVIT_NO_CUDA -DMEGAVIT_PLAN -DMEGAVIT_TEXT $common -fsyntax-only "$file"
}
for compiler in gcc/c/c99 g++/cc/c++11 clang/c/c99 clang++/cc/c++11; do
    IFS=/ read -r program extension dialect <<<"$compiler"
    if command -v "$program" >/dev/null; then
        check "MEGAVIT_STATIC without the implementation, and before it, $program" static_declarations "$program" "$extension" "$dialect"
    else
        skip "MEGAVIT_STATIC without the implementation, and before it, $program" "no $program"
    fi
done

wait

# ---- linking ----

check "one implementation, two users, C" bash -c "
    gcc -DMEGAVIT_NO_CUDA -I. -c $scratch/implementation.c -o $scratch/c.o &&
    gcc -I. $scratch/c.o $scratch/declarations.c $scratch/main.c -o $scratch/program -lpthread -lm && $scratch/program"
check "the same in C, two users in C++" \
    bash -c "g++ -I. $scratch/c.o $scratch/declarations.cc $scratch/main.cc -o $scratch/mixed -lpthread -lm && $scratch/mixed"
for compiler in gcc g++; do
    [ $compiler = gcc ] && extension=c || extension=cc
    check "MEGAVIT_STATIC in two files, $compiler" bash -c "
        sed 's/USER/first/' $scratch/static_user.$extension >$scratch/first.$extension
        sed 's/USER/second/' $scratch/static_user.$extension >$scratch/second.$extension
        cp $scratch/static_main.c $scratch/static_main.cc
        $compiler -O1 -Wall -Wextra -Wno-unused-function -Werror -DMEGAVIT_NO_CUDA -I. $scratch/first.$extension $scratch/second.$extension \
            $scratch/static_main.$extension -o $scratch/static -lpthread -lm && $scratch/static"
done
check "declarations alone define and need nothing" bash -c "
    printf '#include \"megavit.h\"\ntypedef int nothing;\n' >$scratch/empty.c
    gcc -I. -c $scratch/empty.c -o $scratch/empty.o && ! nm $scratch/empty.o | grep ."

# ---- what lies in the object file ----

forbidden='_?exit|_Exit|quick_exit|abort|atexit|signal|sigaction|raise|setlocale|localeconv|strto(d|f|ld)|ato[fil]|.*scanf'
forbidden="$forbidden|_*v?(f|s|sn|d|as)?printf(_chk)?|puts|fputs|putchar|perror|__assert.*|_assert|_wassert|s?rand|getenv"
no_forbidden_symbol() {
    ! nm --undefined-only "$1" | awk '{ print $NF }' | sed 's/@.*//' | grep -Ex "$forbidden"
}
# Constant tables that hold pointers lie in .data.rel.ro: the loader writes them once and then locks them.
no_writable_global() {
    ! objdump -h "$1" | awk '$2 ~ /^\.(data|bss|tdata|tbss)/ && $2 !~ /^\.data\.rel\.ro/ && $3 !~ /^0+$/ { print $2, $3; bad = 1 } END { exit !bad }' || return 1
    ! nm "$1" | grep -E ' [CBDGS] '
}
only_prefixed_symbols() {
    ! nm --defined-only --extern-only "$1" | awk 'NF == 3 { print $3 }' | grep -v '^mgv_[a-z]'
}
for compiler in gcc clang; do
    for optimise in -O0 -O2; do
        object=$scratch/$compiler$optimise.o
        if ! command -v $compiler >/dev/null; then
            skip "symbols of $compiler $optimise" "no $compiler"
            continue
        fi
        check "$compiler $optimise compiles with all warnings" \
            $compiler -std=c99 $optimise -fPIC -DMEGAVIT_NO_CUDA -DMEGAVIT_TEXT $common $c_only -c "$scratch/implementation.c" -o "$object"
        check "$compiler $optimise: no abort, exit, printf, assert, setlocale, signal, atexit, strtod" no_forbidden_symbol "$object"
        check "$compiler $optimise: no writable global" no_writable_global "$object"
        check "$compiler $optimise: every symbol starts with mgv_" only_prefixed_symbols "$object"
    done
done
no_file_call() {
    gcc -O0 -DMEGAVIT_NO_STDIO -DMEGAVIT_NO_CUDA -I. -c "$scratch/implementation.c" -o "$scratch/no_stdio.o" || return 1
    ! nm --undefined-only "$scratch/no_stdio.o" | awk '{ print $NF }' | grep -Ex 'f(open|read|close|seek|seeko|tell|tello|write|flush)(64)?|open|read|close|std(in|out|err)'
}
check "MEGAVIT_NO_STDIO opens no file" no_file_call

# ---- a locale with a decimal comma changes nothing ----

same_in_every_locale() {
    local model=tests/golden/siglip_saved_bfloat16
    gcc -O1 -std=c99 -D_POSIX_C_SOURCE=200809L -DMEGAVIT_NO_CUDA -DMEGAVIT_STATIC -Wno-unused-function -I. tests/locale.c -o "$scratch/locale" -lpthread -lm &&
        LC_ALL=C "$scratch/locale" $model >"$scratch/point" 2>"$scratch/point_half" &&
        LOCPATH=$scratch LC_ALL=de_DE.UTF-8 "$scratch/locale" $model >"$scratch/comma" 2>"$scratch/comma_half" &&
        grep -qF 0.5 "$scratch/point_half" && grep -qF 0,5 "$scratch/comma_half" && diff "$scratch/point" "$scratch/comma"
}
if localedef -i de_DE -f UTF-8 "$scratch/de_DE.UTF-8" 2>/dev/null; then
    check "a decimal comma changes no bit" same_in_every_locale
else
    skip "a decimal comma changes no bit" "no locale sources"
fi

# ---- what the manual says ----

version=$(sed -n 's/^#define MGV_VERSION "\(.*\)"/\1/p' megavit.h)
check "one version, in the first line, the macros and CHANGELOG.md" bash -c "
    head -n 1 megavit.h | grep -qF ' v$version - ' && grep -q '^## $version' CHANGELOG.md &&
    [ '$version' = \"\$(sed -n 's/^#define MGV_VERSION_[MP][A-Z]* //p' megavit.h | paste -sd.)\" ]"
licence_is_last() { tail -n $(($(wc -l <LICENSE) + 2)) megavit.h | diff - <(echo '/*' && cat LICENSE && echo '*/'); }
check "the licence is the header's end" licence_is_last
no_long_line() { ! awk 'length($0) > 140 {print FILENAME ":" FNR}' "$@" | grep .; }
check "no line of the header or of the kernels is longer than 140 columns" no_long_line megavit.h $(find kernels -name "*.cu*")
# Every option that a conditional looks at is in the manual's table, and every line of the table is looked at.
# What the header defines for itself, and what only our own tools define, is no option.
options_are_documented() {
    local own='MEGAVIT_(H|IMPLEMENTED|KERNEL_STRUCTS|KERNELS)'
    diff <(sed -n '/^   OPTIONS/,/^   ERRORS/s/^           \(MEGAVIT_[A-Z_]*\).*/\1/p' megavit.h | sort -u) \
        <(grep -E '^ *# *(if|elif)' megavit.h | grep -oE 'MEGAVIT_[A-Z_]+' | grep -vxE "$own" | sort -u)
}
check "the manual's table of options is whole" options_are_documented

# ---- the gates themselves: each must reject what it is there for ----

cat >"$scratch/planted.c" <<'C'
#include <stdio.h>
#include <stdlib.h>
int mgv_counter = 1;
int stray(const char *text) { printf("%d", mgv_counter++); return (int)strtod(text, NULL); }
C
gcc -O2 -c "$scratch/planted.c" -o "$scratch/planted.o"
printf '%0141d\n' 0 >"$scratch/planted.txt"
check "the gate on long lines sees a planted one" bash -c "! ($(declare -f no_long_line); no_long_line $scratch/planted.txt)"
check "the gate on calls sees a planted strtod" bash -c "! ($(declare -f no_forbidden_symbol); forbidden='$forbidden'; no_forbidden_symbol $scratch/planted.o)"
check "the gate on globals sees a planted global" bash -c "! ($(declare -f no_writable_global); no_writable_global $scratch/planted.o)"
check "the gate on names sees a planted name" bash -c "! ($(declare -f only_prefixed_symbols); only_prefixed_symbols $scratch/planted.o)"

echo "1..$number"
for ((i = 1; i <= number; i++)); do cat "$scratch/result.$i"; done
