#!/usr/bin/env bash
# The tables of >>unicode are what their tool makes of Debian's unicode-data, where that is there. Speaks TAP.
cd "$(dirname "$0")/.." || exit 1
version=$(sed -n 's/^#define MGV__UNICODE_VERSION "\(.*\)"/\1/p' megavit.h)
data=/usr/share/unicode
echo 1..2
if ! command -v python3 >/dev/null || ! grep -q "^# PropList-$version.txt" $data/PropList.txt 2>/dev/null; then
    echo "ok 1 - the tables are those of Unicode $version # SKIP no python3, or no unicode-data of that version"
    echo "ok 2 - a table that is another is seen # SKIP the same"
    exit 0
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if python3 tools/make_unicode_tables.py --check megavit.h; then echo "ok 1 - the tables are those of Unicode $version"
else echo "not ok 1 - the tables are those of Unicode $version"; fi
sed 's/^static const uint32_t mgv__unicode_classes\[\] = {$/&\n    0x1,/' megavit.h >"$scratch/megavit.h"
if python3 tools/make_unicode_tables.py --check "$scratch/megavit.h" 2>/dev/null; then echo "not ok 2 - a table that is another is seen"
else echo "ok 2 - a table that is another is seen"; fi
