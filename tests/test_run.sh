#!/usr/bin/env bash
# tests/run itself: what it says of programs that pass, fail, skip, crash and stop early, and of two runs that share BUILD. Speaks TAP.
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
mkdir "$scratch/one" "$scratch/other"

program() { # FILE LINES: a program that does this
    printf '#!/bin/sh\n%s\n' "$2" >"$scratch/$1" && chmod +x "$scratch/$1"
}
run() { BUILD=$scratch/build tests/run "${@/#/$scratch/}"; }
says() { # STATUS SUM NAMES PROGRAM...: the status, the last line, and who is named in the verdict
    local status=$1 sum=$2 names=$3 said
    shift 3
    said=$(run "$@")
    [ "$? $(tail -n 1 <<<"$said")" = "$status $sum" ] && grep -q "^${names:-every test}" <<<"$said"
}
program passes 'echo 1..2; echo ok 1; echo "ok 2 - b # skip why"'
program fails 'echo 1..2; echo ok 1; echo not ok 2'
program stops 'echo 1..3; echo ok 1'
program crashes 'echo 1..1; echo ok 1; kill -SEGV $$'
program silent ''
check "passed and skipped" says 0 "1 passed, 0 failed, 1 skipped" "" passes
check "failed" says 1 "2 passed, 1 failed, 1 skipped" "FAILED: fails" passes fails
check "stopped before its plan was done" says 1 "1 passed, 1 failed, 0 skipped" "FAILED: stops" stops
check "crashed behind its last test" says 1 "1 passed, 1 failed, 0 skipped" "FAILED: crashes" crashes
check "no plan, and no such program" says 1 "0 passed, 2 failed, 0 skipped" "FAILED: silent nobody" silent nobody

# The first run's program waits until the other run, of a program of the same name, is done and has failed.
wait_for() {
    for _ in $(seq 3000); do [ -e "$1" ] && return; sleep 0.1; done
    return 1
}
program one/same "touch $scratch/begun; until [ -e $scratch/go ]; do sleep 0.1; done; echo 1..1; echo ok 1"
program other/same 'echo 1..1; echo not ok 1'
beside() {
    local first
    TEST_TIMEOUT=600 run one/same >"$scratch/first" &
    first=$!
    wait_for "$scratch/begun" && says 1 "0 passed, 1 failed, 0 skipped" "FAILED: same" other/same
    local other=$?
    touch "$scratch/go"
    wait $first && ((other == 0)) && [ "$(tail -n 1 "$scratch/first")" = "1 passed, 0 failed, 0 skipped" ]
}
check "another run with the same BUILD" beside
check "nothing is left of them but logs" sh -c "! ls -d $scratch/build/tests/run.* && [ -s $scratch/build/tests/same.log ]"
echo "1..$number"
