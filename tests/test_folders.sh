#!/usr/bin/env bash
# Names of pictures as the command line finds them: folders, links, lists; names beside rows. Speaks TAP.
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
model=$PWD/tests/golden/siglip_saved_bfloat16
program=$(realpath "$build/megavit")
pictures=$PWD/tests/pictures

# embed ARGUMENT...: runs in $scratch/tree; $code, $said, and $names: what the rows are of.
embed() {
    (cd "$scratch/tree" && "$program" embed --model "$model" --format jsonl "$@" 2>"$scratch/err" >"$scratch/out")
    code=$?
    said=$(cat "$scratch/err")
    names=$(sed 's/^{"file": "//; s/", "embedding.*//' "$scratch/out" | tr '\n' ' ')
}
expect() { # CODE NAMES
    [ "$code" = "$1" ] && [ "$names" = "$2" ] || { echo "code $code, names $names, said $said"; return 1; }
}

mkdir -p "$scratch/tree/a/b/c" "$scratch/tree/a-b"
cp "$pictures/rgb.png" "$scratch/tree/a/b/c/1.png"
cp "$pictures/444.jpg" "$scratch/tree/a/b/photo.jfif"
cp "$pictures/420.jpg" "$scratch/tree/a/no_extension"
cp "$pictures/grey.png" "$scratch/tree/a/called.txt"
cp "$pictures/rgb.tga" "$scratch/tree/a-b/x.tga"
cp "$pictures/rgb.tga" "$scratch/tree/a/not_called_so" # no signature: only its name would say what it is
echo "no picture" >"$scratch/tree/a/b/notes.txt"
printf '\0\5\26\7' >"$scratch/tree/a/b/._photo.jfif"

walks_folders_by_content() {
    embed . && expect 0 "./a-b/x.tga ./a/b/c/1.png ./a/b/photo.jfif ./a/called.txt ./a/no_extension " &&
        [ "$said" = "megavit: skipped in folders: 2 no pictures" ]
}
check "folders are walked, sorted by path, pictures known by content" walks_folders_by_content
does_not_recurse() {
    embed --no-recurse a && expect 0 "a/called.txt a/no_extension " && [ "$said" = "megavit: skipped in folders: 1 no pictures, 1 folders" ]
}
check "--no-recurse leaves folders out and says so" does_not_recurse

named_files_are_errors() {
    embed a/b/notes.txt a/called.txt && expect 2 "a/called.txt " && [[ $said == *notes.txt*"no picture"* ]]
}
check "a file that somebody names is an error where it is no picture" named_files_are_errors
a_picture_by_name_is_an_error() {
    mkdir -p "$scratch/tree/bad" && echo "<html>" >"$scratch/tree/bad/page.jpg" && : >"$scratch/tree/bad/empty.png" && cp "$pictures/rgb.png" "$scratch/tree/bad/z.png"
    embed bad && expect 2 "bad/z.png " && [[ $said == *page.jpg*"no picture"* && $said == *empty.png*"is empty"* ]]
    rm -r "$scratch/tree/bad"
}
check "so is one in a folder that is called as pictures are" a_picture_by_name_is_an_error
nothing_there() {
    mkdir -p "$scratch/tree/none" "$scratch/tree/text" && echo text >"$scratch/tree/text/a.txt"
    embed none && expect 2 "" && [[ $said == *none*"no picture in this directory"* ]] || return 1
    embed text && expect 2 "" && [[ $said == *"no picture among 1 files"* ]]
    rm -r "$scratch/tree/none" "$scratch/tree/text"
}
check "a folder without pictures is an error" nothing_there

links_once() {
    local tree=$scratch/tree
    ln -s .. "$tree/a/b/up" && ln -s b "$tree/a/again" && ln -s b/photo.jfif "$tree/a/0.jpg" && ln -s ../nowhere "$tree/a/gone.png"
    mkdir -p "$scratch/far" && cp "$pictures/rgb.ppm" "$scratch/far/far.ppm" && ln -s "$scratch/far" "$tree/a/far"
    ln -s "$scratch/far/far.ppm" "$tree/a/near.ppm"
    mkfifo "$tree/a/pipe.png"
    embed a && expect 0 "a/b/c/1.png a/b/photo.jfif a/called.txt a/far/far.ppm a/no_extension " &&
        [ "$said" = "megavit: skipped in folders: 2 no pictures, 1 neither files nor folders, 4 links to what is there already, 1 gone" ]
    rm "$tree/a/b/up" "$tree/a/again" "$tree/a/0.jpg" "$tree/a/gone.png" "$tree/a/far" "$tree/a/near.ppm" "$tree/a/pipe.png"
}
check "links are followed, each file comes once, loops end" links_once
a_pipe_does_not_block() {
    mkfifo "$scratch/tree/pipe.png"
    embed pipe.png && expect 2 "" && [[ $said == *pipe.png*"not a regular file"* ]]
    rm "$scratch/tree/pipe.png"
}
check "a pipe by name is an error and does not block" a_pipe_does_not_block

lists_of_names() {
    printf 'a/called.txt\r\n\na/b\n' >"$scratch/list" && embed --files-from "$scratch/list" && expect 0 "a/called.txt a/b/c/1.png a/b/photo.jfif " || return 1
    printf 'a/called.txt\0a/b/photo.jfif\0' >"$scratch/list0" && embed --files0-from "$scratch/list0" && expect 0 "a/called.txt a/b/photo.jfif " || return 1
    embed --files0-from - <"$scratch/list0" && expect 0 "a/called.txt a/b/photo.jfif " || return 1
    embed a/no_extension --files-from - <"$scratch/list" && expect 0 "a/no_extension a/called.txt a/b/c/1.png a/b/photo.jfif " || return 1
    printf '\xef\xbb\xbfa/called.txt\na/b\n' >"$scratch/list" && embed --files-from "$scratch/list" &&
        expect 0 "a/called.txt a/b/c/1.png a/b/photo.jfif " || return 1
    embed --files-from "$scratch/no_list" && expect 2 "" && [[ $said == *no_list* ]]
}
check "--files-from and --files0-from, from a file or standard input" lists_of_names

names_beside_rows() {
    local odd=$'a/line\nquote".png'
    cp "$pictures/rgb.png" "$scratch/tree/$odd"
    (cd "$scratch/tree" && "$program" embed --model "$model" -o "$scratch/rows.npy" a/no_extension "$odd" a/called.txt) || return 1
    printf '"a/no_extension"\n"a/line\\u000aquote\\".png"\n"a/called.txt"\n' | cmp - "$scratch/rows.npy.names" || return 1
    (cd "$scratch/tree" && "$program" embed --model "$model" -o - a/no_extension "$odd" a/called.txt >"$scratch/piped.npy") && cmp "$scratch/rows.npy" "$scratch/piped.npy" || return 1
    [ ! -e "$scratch/tree/-" ] && [ ! -e "$scratch/tree/-.names" ] || return 1
    rm "$scratch/tree/$odd"
}
check "FILE.names has the names of the rows; -o - is standard output" names_beside_rows
pixels_to_standard_output() {
    "$program" preprocess --model tests/golden/qwen3_saved -o "$scratch/values.npy" "$pictures/rgb.png" >"$scratch/grid" || return 1
    "$program" preprocess --model tests/golden/qwen3_saved -o - "$pictures/rgb.png" >"$scratch/piped.npy" 2>"$scratch/err" || return 1
    cmp "$scratch/values.npy" "$scratch/piped.npy" && cmp "$scratch/grid" "$scratch/err" && grep -q '^grid_thw ' "$scratch/grid"
}
check "preprocess -o - gives the array alone on standard output" pixels_to_standard_output
names_do_not_replace_inputs() {
    cp "$pictures/rgb.png" "$scratch/tree/rows.npy.names"
    (cd "$scratch/tree" && "$program" embed --model "$model" -o rows.npy rows.npy.names 2>"$scratch/err")
    [ $? = 1 ] && cmp "$pictures/rgb.png" "$scratch/tree/rows.npy.names" && [ ! -e "$scratch/tree/rows.npy" ]
}
check "names do not replace a picture that is read" names_do_not_replace_inputs

echo "1..$number"
