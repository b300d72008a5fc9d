# shellcheck shell=bash
# What the shell tests share, after they have gone to the repository's root: a scratch directory that goes when they end, and results in TAP.
build=${BUILD:-build}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
number=0

# check NAME COMMAND...: one test; the end of what the command said is shown when it failed.
check() {
    local name=$1
    shift
    number=$((number + 1))
    if "$@" >"$scratch/said" 2>&1; then
        echo "ok $number - $name"
    else
        echo "not ok $number - $name"
        tail -n 12 "$scratch/said" | sed 's/^/# /'
    fi
}
# skip NAME REASON
skip() {
    number=$((number + 1))
    echo "ok $number - $1 # SKIP $2"
}
