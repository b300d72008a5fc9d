#!/usr/bin/env bash
# Many pictures of many kinds in one call: rows, messages and memory. Speaks TAP.
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
fixed=tests/golden/siglip_saved_bfloat16
varied=tests/golden/qwen3_saved
pictures=tests/pictures

# Rows and messages of the whole folder, however many threads and however long batches are.
alike() { # MODEL WHAT
    local threads batch
    for threads in 1 3 16; do
        for batch in 1 8 50; do
            "$build/megavit" embed --model "$1" --what "$2" --threads $threads --batch $batch -o "$scratch/rows.$threads.$batch.npy" $pictures 2>"$scratch/said.$threads.$batch"
            [ $? = 2 ] || return 1 # damaged pictures are among them
            cmp "$scratch/rows.1.1.npy" "$scratch/rows.$threads.$batch.npy" && cmp "$scratch/rows.1.1.npy.names" "$scratch/rows.$threads.$batch.npy.names" &&
                cmp "$scratch/said.1.1" "$scratch/said.$threads.$batch" || return 1
        done
    done
    [ "$(wc -l <"$scratch/rows.1.1.npy.names")" -gt 60 ] && [ "$(wc -l <"$scratch/said.1.1")" -gt 5 ]
}
check "rows, names and messages do not depend on threads and batches" alike $fixed pooled
check "nor do the tokens of pictures of any size" alike $varied tokens

one_by_one() {
    "$build/megavit" embed --model $fixed --format jsonl $pictures >"$scratch/all" 2>/dev/null
    sed 's/^{"file": "//; s/", "embedding.*//' "$scratch/all" | while read -r name; do "$build/megavit" embed --model $fixed --format jsonl "$name"; done >"$scratch/single"
    [ "$(wc -l <"$scratch/all")" -gt 60 ] && cmp "$scratch/all" "$scratch/single"
}
check "one call gives the rows of one call a picture" one_by_one

memory_is_bounded() {
    local used
    { echo "P5 600 600 255" && head -c 360000 /dev/zero; } >"$scratch/file.pgm"
    "$build/megavit" embed --model $fixed --memory 1 --format jsonl $pictures/large.png $pictures/rgb.png "$scratch/file.pgm" >"$scratch/out" 2>"$scratch/err"
    [ $? = 2 ] && [ "$(wc -l <"$scratch/out")" = 1 ] && grep -q 'large.png: decoding it takes . MB; with --memory [0-9]* it would be taken' "$scratch/err" &&
        grep -q 'file.pgm: the file has . MB; with --memory 2 it would be taken' "$scratch/err" || return 1
    for _ in {1..40}; do echo examples/pictures/red-circle.png; done >"$scratch/list"
    "$build/megavit" embed --model $fixed --memory 8 --threads 9 -o "$scratch/few.npy" --files-from "$scratch/list" &&
        "$build/megavit" embed --model $fixed --threads 1 -o "$scratch/many.npy" --files-from "$scratch/list" && cmp "$scratch/few.npy" "$scratch/many.npy"
}
check "what does not fit into --memory is named, and little memory gives the same rows" memory_is_bounded

as_transformers() {
    local model library name digest count=0
    while read -r model library name digest; do
        "$build/megavit" --version | grep -q "not built in" && [[ ! $name =~ png|gif ]] && continue
        "$build/megavit" preprocess --model tests/golden/$model --resize $library -o "$scratch/values.npy" $pictures/$name >/dev/null || return 1
        [ "$(tail -c +129 "$scratch/values.npy" | md5sum | cut -d' ' -f1)" = "$digest" ] || { echo "$model $library $name"; return 1; }
        count=$((count + 1))
    done <$pictures/values.txt
    [ $count -ge 24 ]
}
check "preprocess gives the values of transformers' processors, bit for bit" as_transformers

little_of_the_machine() {
    { echo "P5 4000 3800 255" && head -c 15200000 /dev/zero; } >"$scratch/large.pgm"
    (ulimit -v 400000 && "$build/megavit" embed --model $varied --threads 1 --max-pixels 16000000 --what tokens --format jsonl $pictures/rgb.png "$scratch/large.pgm" $pictures/grey.png >"$scratch/out" 2>"$scratch/err")
    [ $? = 3 ] && [ "$(wc -l <"$scratch/out")" = 2 ] && grep -q 'out of memory' "$scratch/err" && grep -q 'large.pgm: not embedded' "$scratch/err" || return 1
    { echo "P5 40000 5000 255" && head -c 200000000 /dev/zero; } >"$scratch/large.pgm" # its bytes alone, whatever else there is by then
    (ulimit -v 200000 && "$build/megavit" embed --model $varied --threads 1 --format jsonl $pictures/rgb.png "$scratch/large.pgm" $pictures/grey.png >"$scratch/out" 2>"$scratch/err")
    [ $? = 3 ] && [ "$(wc -l <"$scratch/out")" = 2 ] && grep -q 'large.pgm.*not enough memory' "$scratch/err"
    local code=$?
    rm "$scratch/large.pgm"
    return $code
}
if (ulimit -v 300000 && "$build/megavit" --version) >"$scratch/out" 2>&1; then
    check "what is too large for the machine is named, the others are embedded, and the exit code is 3" little_of_the_machine
else
    skip "what is too large for the machine is named" "this program cannot run in 300 MB, as under a sanitizer"
fi

files_that_vanish() {
    local odd=$scratch/odd
    mkdir -p "$odd" && cp $pictures/rgb.png "$odd/a.png" && cp $pictures/grey.png "$odd/z.png"
    "$build/megavit" embed --model $fixed --format jsonl "$odd/a.png" "$odd/gone.png" "$odd" "$odd/z.png" >"$scratch/out" 2>"$scratch/err"
    [ $? = 2 ] && [ "$(wc -l <"$scratch/out")" = 4 ] && [ "$(wc -l <"$scratch/err")" = 1 ] && grep -q 'gone.png: cannot open' "$scratch/err"
}
check "a file that is gone is named, the others are embedded" files_that_vanish

echo "1..$number"
