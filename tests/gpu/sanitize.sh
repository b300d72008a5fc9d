#!/usr/bin/env bash
# compute-sanitizer over a few encodes of the smallest model: memcheck, initcheck, synccheck, or those named.
# usage: sanitize.sh MICRO FATBIN [TOOL...]      (make build/gpu/micro build/megavit.fatbin)
#        sanitize.sh MICRO RACECHECK_FATBIN racecheck      (make build/gpu/racecheck.fatbin: other kernels never end under that tool)
# For each tool: its exit code, its summary, and what it reported, each kind once with how often.
set -u
micro=$1 fatbin=$2
shift 2
command -v compute-sanitizer >/dev/null || { echo "there is no compute-sanitizer here"; exit 3; }
compute-sanitizer --version | grep -i version
failed=0
for tool in "${@:-memcheck initcheck synccheck}"; do
    for name in $tool; do
        log=$(mktemp)
        start=$SECONDS
        timeout 90 compute-sanitizer --tool "$name" --error-exitcode 9 --print-limit 2000 "$micro" "$fatbin" >"$log" 2>&1
        code=$?
        echo "== $name: exit code $code after $((SECONDS - start)) s"
        grep -E "SUMMARY|pictures:|stopped" "$log"
        # a hazard is two lines: who wrote, and who else was there
        awk '/Race reported between/ { line = $0; next } line != "" && / and / { print line, substr($0, 10); line = ""; next } /^========= (Invalid|Uninit|Barrier|Error|Warning|Internal|Program hit)/' "$log" |
            sed -E 's/\+0x[0-9a-f]+//g; s/0x[0-9a-f]+/ADDRESS/g; s/\([^()]*\)//g; s/ +/ /g' | sort | uniq -c | sort -rn | head -50
        [ $code -eq 0 ] || failed=1
        rm -f "$log"
    done
done
exit $failed
