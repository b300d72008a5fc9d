#!/bin/sh
# tools/make_man.sh PROGRAM: a manual page in man(7), made from what the program's --help says.
program=$1
date=${SOURCE_DATE_EPOCH:+@$SOURCE_DATE_EPOCH}
# Text as it stands: backslashes and what would begin a request are escaped.
verbatim() {
    echo .nf
    sed -e 's/\\/\\e/g' -e "s/^[.']/\\\\\\&&/" -e 's/-/\\-/g'
    echo .fi
}
version=$("$program" --version | sed -n '1s/.* //p')
printf '.TH MEGAVIT 1 "%s" "megavit %s" "User Commands"\n' "$(LC_ALL=C date -u -d "${date:-now}" +%Y-%m-%d 2>/dev/null)" "$version"
printf '.SH NAME\nmegavit \\- embeddings of pictures\n.SH SYNOPSIS\n.B megavit\nCOMMAND ...\n.SH DESCRIPTION\n'
"$program" --help | sed 1,2d | verbatim
printf '.SH COMMANDS\n'
for command in $("$program" --help | sed -n 's/^  \([a-z][a-z]*\) .*/\1/p'); do
    [ "$command" = version ] && continue
    printf '.SS %s\n' "$command"
    "$program" "$command" --help | sed 1,2d | verbatim
done
