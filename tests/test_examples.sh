#!/usr/bin/env bash
# The programs of examples/, run as their first comments say, on the default model. Speaks TAP.
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
model=examples/model
picture=examples/pictures/red-circle.png

embeds_as_the_command_line() {
    "$build/tests/examples/embed" $model $picture | tr '\n' ' ' | sed 's/ $//; s/ /, /g' >"$scratch/example"
    "$build/megavit" embed --model $model --format jsonl $picture | sed 's/.*\[//; s/\].*//' | tr -d '\n' >"$scratch/cli"
    [ -s "$scratch/cli" ] && cmp "$scratch/example" "$scratch/cli"
}
check "embed prints what the command line does" embeds_as_the_command_line
pipeline_agrees() {
    "$build/tests/examples/pipeline" $model examples/pictures/*.png >"$scratch/pipeline" || return 1
    [ "$(wc -l <"$scratch/pipeline")" = "$(ls examples/pictures/*.png | wc -l)" ] || return 1
    while read -r name first _; do
        "$build/megavit" embed --model $model --format jsonl "$name" | grep -q "\[$first, " || return 1
    done < <(sed -n '1p;5p;$p' "$scratch/pipeline")
    ! "$build/tests/examples/pipeline" no_such_model $picture && "$build/tests/examples/pipeline" $model no_such_picture 2>&1 | grep -q no_such_picture
}
check "pipeline gives the command line's rows, in order" pipeline_agrees
game_loop_agrees() {
    "$build/tests/examples/game_loop" $model $picture examples/pictures/red-heart-wood.png >"$scratch/loop" || return 1
    [ "$(grep -c ' frames, .* steps, ' "$scratch/loop")" = 2 ] || return 1
    "$build/megavit" embed --model $model --format jsonl $picture | grep -q "\[$(sed -n '1s/.*  \(-*[0-9]*\.[0-9]\{4\}\).*/\1/p' "$scratch/loop")"
}
check "game_loop encodes between frames and gives the command line's numbers" game_loop_agrees
check "threads share a model and agree" "$build/tests/examples/threads" $model $picture
check "memory_and_log allocates nothing while it encodes and frees all" "$build/tests/examples/memory_and_log" $model
check "plus_plus runs" bash -c "'$build/tests/examples/plus_plus' $model | grep -qx '[0-9]* tokens of [0-9]* floats; the first is .*'"
check "most_alike finds the other red circle and draws a sheet" bash -c "
    '$build/tests/examples/most_alike' $model '$scratch/sheet.png' examples/pictures/*.png | grep -q '^red-circle  .*[0-9] red-circle-paper ' &&
    head -c 4 '$scratch/sheet.png' | grep -q PNG"
# A name of any bytes and any length is drawn, and changes the sheet.
captions_are_the_names() {
    local long
    long=$scratch/$(printf 'x%.0s' {1..200})$'\x9b\n\xe9'.png
    cp "$picture" "$long"
    cp "$picture" "$scratch/short.png"
    "$build/tests/examples/most_alike" $model "$scratch/a.png" "$long" examples/pictures/{black-cross,yellow-star,red-circle-paper}.png &&
        "$build/tests/examples/most_alike" $model "$scratch/b.png" "$scratch/short.png" examples/pictures/{black-cross,yellow-star,red-circle-paper}.png &&
        ! cmp -s "$scratch/a.png" "$scratch/b.png"
}
check "most_alike writes names below the pictures" captions_are_the_names
any_size_agrees() {
    "$build/tests/examples/any_size" tests/golden/qwen3_saved $picture examples/pictures/red-heart-wood.png >"$scratch/any" &&
        grep -q 'red-circle.png .* 100 patches,  *25 tokens' "$scratch/any" && grep -q '160 x 200 .* 120 patches,  *30 tokens' "$scratch/any" &&
        grep -qx 'tokens       \[55, 32\]' "$scratch/any" && grep -qx 'deepstack:1  \[55, 32\]' "$scratch/any" &&
        "$build/megavit" embed --model tests/golden/qwen3_saved --what tokens --format jsonl $picture |
        grep -q "\[\[$(sed -n 's/^first numbers: \(-*[0-9.]\{6\}\).*/\1/p' "$scratch/any")"
}
check "any_size lays out pictures of different sizes and gives the command line's tokens" any_size_agrees
describes_as_the_command_line() {
    "$build/tests/examples/describe" examples/talking $picture >"$scratch/described" && grep -qx 'a red circle' "$scratch/described" &&
        "$build/tests/examples/describe" examples/talking examples/pictures/two-checked-blue-squares.png 'How many are there?' | grep -qx two &&
        "$build/megavit" generate --model examples/talking --image $picture | cmp - "$scratch/described"
}
check "describe says what is in a picture" describes_as_the_command_line
says_what_is_wrong() {
    ! "$build/tests/examples/$1" no_such_model "${@:2}" >"$scratch/out" 2>"$scratch/err" && grep -q config.json "$scratch/err"
}
check "embed names a model that is not there" says_what_is_wrong embed $picture
check "threads names a model that is not there" says_what_is_wrong threads $picture
check "memory_and_log names a model that is not there" says_what_is_wrong memory_and_log
check "plus_plus names a model that is not there" says_what_is_wrong plus_plus
check "any_size names a model that is not there" says_what_is_wrong any_size $picture
check "most_alike names a model that is not there" says_what_is_wrong most_alike "$scratch/no.png" examples/pictures/*.png

echo "1..$number"
