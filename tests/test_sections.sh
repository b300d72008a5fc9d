#!/usr/bin/env bash
# The house's rules, held by reading the source: no section of megavit.h uses another than those that its line in the list of sections names,
# kernels' files and functions stay short, asm stays in one file, the benchmarks' picture is what their tables say. Speaks TAP.
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh

# Prints, for each section of a header, the sections that it uses, as its list would say it, with a name for each: "SECTION USED NAME LINE".
# A name belongs to the section in which its function or struct has a body, else to the first in which it stands, as C wants it declared
# before it is used. Whatever stands above the list of sections may be used by all, and >>memory too.
section_uses() {
    awk '
    function strip(line,    out, c, rest) { # comments, strings and characters become blanks
        out = ""
        while (line != "") {
            if (in_comment) {
                c = index(line, "*/")
                if (!c) return out
                line = substr(line, c + 2)
                in_comment = 0
                continue
            }
            if (!match(line, /\/\*|"([^"\\]|\\.)*"|\047([^\047\\]|\\.)*\047/)) return out line
            c = substr(line, RSTART, 2)
            out = out substr(line, 1, RSTART - 1) " "
            line = substr(line, RSTART + (c == "/*" ? 2 : RLENGTH))
            if (c == "/*") in_comment = 1
        }
        return out
    }
    /^   >>[a-z0-9_-]+:/ && banner == FNR - 1 { # the banner before has opened a comment
        name = $1
        gsub(/[>:]/, "", name)
        section = name
    }
    /^\/\* [-=]+$/ { banner = FNR }
    {
        code = strip($0)
        if (section == "") { while (match(code, /[A-Za-z_][A-Za-z0-9_]*/)) { above[substr(code, RSTART, RLENGTH)] = 1; code = substr(code, RSTART + RLENGTH) } next }
        if (match(code, /(struct|union|enum) mgv_[a-z0-9_]+ \{/)) {
            name = substr(code, RSTART, RLENGTH - 2)
            sub(/^[a-z]+ /, "", name)
            if (!(name in body)) body[name] = section
        }
        if (depth == 0 && candidate == "" && code ~ /^[a-zA-Z]/ && code !~ /=/ && match(code, /mgv_[a-z0-9_]+\(/))
            candidate = substr(code, RSTART, RLENGTH - 1)
        if (candidate != "" && match(code, /[;{]/)) {
            if (substr(code, RSTART, 1) == "{" && !(candidate in body)) body[candidate] = section
            candidate = ""
        }
        for (rest = code; match(rest, /[A-Za-z_][A-Za-z0-9_]*/); rest = substr(rest, RSTART + RLENGTH)) {
            name = substr(rest, RSTART, RLENGTH)
            if (name !~ /^(mgv_|MGV_)/) continue
            if (!(name in first)) first[name] = section
            if (!((section, name) in used)) used[section, name] = FNR
        }
        depth += gsub(/\{/, "", code) - gsub(/\}/, "", code)
    }
    END {
        for (pair in used) {
            split(pair, part, SUBSEP)
            name = part[2]
            home = name in body ? body[name] : name in above ? part[1] : first[name]
            if (home != part[1] && home != "memory") print part[1], home, name, used[pair]
        }
    }' "$1"
}

# What the list allows: "SECTION USED" for each. A line of the list is ">>name  what it is  < used used".
section_list() {
    awk '
    /^   Sections, in the order/ { listing = 1 }
    listing && /^ *=+ \*\/$/ { exit }
    listing && $1 ~ /^>>/ { section = substr($1, 3); allowed = 0; print section, section }
    listing && section != "" { for (i = 1; i <= NF; i++) { if (allowed) print section, $i; if ($i == "<") allowed = 1 } }' "$1"
}

sections_use_what_they_may() {
    local header=$1
    section_list "$header" | sort -u >"$scratch/may"
    section_uses "$header" >"$scratch/use"
    [ -s "$scratch/may" ] && [ -s "$scratch/use" ] || { echo "no list of sections, or no sections"; return 1; }
    awk 'NR == FNR { may[$1, $2] = 1; section[$1] = 1; next }
         { did[$1, $2] = 1 }
         !($1 in section) { if (!($1 in told)) print ">>" $1 " is not in the list of sections"; told[$1] = bad = 1; next }
         !(($1, $2) in may) { print ">>" $1 " may not use >>" $2 ": line " $4 ", " $3; bad = 1 }
         END { for (pair in may) { split(pair, part, SUBSEP)
                   if (part[1] != part[2] && !(pair in did)) { print ">>" part[1] " does not use >>" part[2] ", but may"; bad = 1 } }
               exit bad }' "$scratch/may" "$scratch/use"
}
listed_sections_exist() {
    diff <(section_list megavit.h | awk '$1 == $2 { print $1 }') <(awk '/^\/\* [-=]+$/ { at = FNR } /^   >>[a-z0-9_-]+:/ && at == FNR - 1 { gsub(/[>:]/, "", $1); print $1 }' megavit.h)
}
check "the sections are those of the list, in its order" listed_sections_exist
check "no section uses what its line does not say, nor may what it does not use" sections_use_what_they_may megavit.h

# planted SED_PROGRAM WORDS: the header with that fault in it is refused, with these words.
planted() {
    sed "$1" megavit.h >"$scratch/planted.h"
    ! cmp -s megavit.h "$scratch/planted.h" && ! sections_use_what_they_may "$scratch/planted.h" >"$scratch/refused" && grep -F "$2" "$scratch/refused"
}
check "a planted use is seen" planted '/^   >>json:/,/^static/s/^static/static void mgv__stray(mgv__plan *plan);\nstatic/' ">>json may not use >>plan: line"
check "a name taken out of a line is missed" planted '/^     >>cpu  .*< /s/ ops / /' ">>cpu may not use >>ops: line"
check "a name too many in a line is seen" planted '/^     >>json  [^<]*$/s/$/ < plan/' ">>json does not use >>plan, but may"

# ---- kernels: short files, short functions, asm in one place ----

mapfile -t kernels < <(find kernels -name '*.cu' -o -name '*.cuh' | sort)
short_files() { ! awk 'FNR == 1 { lines = 0 } ++lines == 500 { print FILENAME " has 500 lines or more"; bad = 1 } END { exit !bad }' "$@"; }
# A function begins at the margin and ends with a brace there.
short_functions() {
    ! awk 'FNR == 1 { start = 0 }
           /^[A-Za-z]/ && !start && !/;$/ { start = FNR; head = $0 }
           /^}/ { if (start && FNR - start >= 80 && head !~ /^(struct|enum|union|typedef|static const|const|namespace)/)
                      { print FILENAME ":" start ": " FNR - start + 1 " lines: " head; bad = 1 }
                  start = 0 }
           /^[^ ].*;$/ { start = 0 }
           END { exit !bad }' "$@"
}
asm_in_one_file() { ! grep -nE '\basm\b *(volatile)? *\(' "$@"; }
mapfile -t not_ptx < <(printf '%s\n' "${kernels[@]}" | grep -v '^kernels/ptx.cuh$')
check "kernel files have fewer than 500 lines, but for ptx.cuh" short_files "${not_ptx[@]}"
check "functions have at most 80 lines" short_functions megavit.h "${kernels[@]}" tools/*.c tools/*.h
check "asm is in ptx.cuh alone" asm_in_one_file "${not_ptx[@]}" megavit.h
{ echo 'DEVICE void planted(void) {'; printf '    x();\n%.0s' {1..80}; echo '}'; } >"$scratch/long.cuh"
yes '/* line */' | head -n 500 >"$scratch/lines.cuh"
echo 'DEVICE void planted(void) { asm volatile("nop;"); }' >"$scratch/asm.cuh"
check "a planted function of 82 lines is seen" bash -c "! ($(declare -f short_functions); short_functions $scratch/long.cuh)"
check "a planted file of 500 lines is seen" bash -c "! ($(declare -f short_files); short_files $scratch/lines.cuh)"
check "a planted asm is seen" bash -c "! ($(declare -f asm_in_one_file); asm_in_one_file $scratch/asm.cuh)"

# ---- papers ----

if command -v python3 >/dev/null; then
    check "BENCHMARKS.svg is drawn from BENCHMARKS.md" python3 tools/bench/plot.py --check
else
    skip "BENCHMARKS.svg is drawn from BENCHMARKS.md" "no python3"
fi
# Tests that promises name, and fuzzers that no promise names.
named_tests_exist() {
    local name missing=0
    for name in $(grep -oE 'tests/test_[a-z0-9_]+\.c' "$1" | sort -u); do [ -f "$name" ] || { echo "$name is not there"; missing=1; }; done
    diff <(grep -oE '\bfuzz_[a-z]+' "$1" | sort -u) <(basename -s .c tests/fuzz/fuzz_*.c | sort) && ((missing == 0))
}
misses_planted_name() { sed "s/$1/$2/" SECURITY.md >"$scratch/security.md" && ! named_tests_exist "$scratch/security.md"; }
check "the tests that SECURITY.md names are there, every fuzzer among them" named_tests_exist SECURITY.md
check "a name of no test is seen" misses_planted_name test_kill test_killed
check "a fuzzer that is not named is seen" misses_planted_name "fuzz_session, " ""
short_notes() { (($(wc -l <kernels/NOTES.md) <= 260)) || { wc -l kernels/NOTES.md; return 1; }; }
check "NOTES stay a page that is read" short_notes
echo "1..$number"
