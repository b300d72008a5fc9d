#!/usr/bin/env bash
# The kernels on the machine model (tests/machine/README.md). Compiling them for it takes clang.
cd "$(dirname "$0")/.." || exit 1
if ! command -v clang++ >/dev/null; then
    echo "1..1"
    echo "ok 1 - machine model # skip clang++ is not there"
    exit 0
fi
make --no-print-directory -s BUILD="${BUILD:-build}" "${BUILD:-build}/machine/test_machine" >&2 || exit 1
exec "${BUILD:-build}/machine/test_machine"
