#!/usr/bin/env bash
# Single products and copies of Blackwell's tensor cores on the machine model, beside NumPy after the PTX manual (tests/machine/tile.py).
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
python=${PYTHON:-python3} tiles=$scratch/tiles
# The first case's words of tensor memory lie behind its head, five steps, the image, and the words before.
words=$((80 + 5 * 48 + 102400 + 262144))
changed() { # BYTE...: one of the file is another
    local at
    for at in "$@"; do
        cp "$tiles" "$scratch/other" && printf '\x55' | dd of="$scratch/other" bs=1 seek="$at" conv=notrunc || return 1
        cmp -s "$tiles" "$scratch/other" && return 1
        "$python" tests/machine/tile.py "$scratch/other" && return 1
    done
    return 0
}
check "the cases run on the model" tests/machine/run tile "$tiles"
if [ -f "$tiles" ] && "$python" -c 'import numpy'; then
    check "they leave what the manual says" "$python" tests/machine/tile.py "$tiles"
    check "another sum, and another column that nobody writes, are seen" changed $((words + 2)) $((words + 4 * 300))
else
    skip "they leave what the manual says" "the model did not run, or there is no NumPy"
fi
echo "1..$number"
