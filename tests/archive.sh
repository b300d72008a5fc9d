# shellcheck shell=bash
# What tests of the archive that users vendor share.
version=$(sed -n 's/^#define MGV_VERSION "\(.*\)"/\1/p' megavit.h)

# archive DIRECTORY OPTIONS: make dist, unpacked there.
archive() {
    mkdir -p "$1" && make --no-print-directory dist BUILD="$2" "${@:3}" && tar -xzf "$2/megavit-$version.tar.gz" -C "$1" --strip-components=1
}
# What a README says lies beside it, and what lies beside it it says; the files that only build systems read are not for people.
readme_is_true() {
    local said there
    said=$(grep -oE '`[A-Za-z_.]+\.(h|md|txt|fatbin)`|`LICENSE`' "$1/README.md" | tr -d '`' | sort -u)
    there=$(cd "$1" && ls -p | grep -vE '/$|^(README.md|CMakeLists.txt|meson.build|megavit.pc.in)$' | sort)
    diff <(echo "$said") <(echo "$there")
}
