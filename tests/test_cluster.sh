#!/usr/bin/env bash
# examples/cluster on two workers of a local Ray, where Python has it. Speaks TAP.
cd "$(dirname "$0")/.." || exit 1
. tests/tap.sh
python=${PYTHON:-python3}
export PYTHONPATH=$PWD/examples/cluster:$PWD/tests${PYTHONPATH:+:$PYTHONPATH} RAY_USAGE_STATS_ENABLED=0 RAY_DATA_DISABLE_PROGRESS_BARS=1
if "$python" -c 'import numpy, PIL, pyarrow, ray.data' 2>/dev/null; then
    check "make lib" make --no-print-directory lib BUILD="$build"
    check "a directory on two workers: each row once, although one dies, and a run that was cut off goes on" \
        env MEGAVIT_LIBRARY="$(readlink -f "$build")/libmegavit.so" timeout 600 "$python" tests/cluster.py "$build/megavit"
else
    skip "a directory on two workers: each row once, although one dies, and a run that was cut off goes on" \
        "no python3 with numpy, pillow and ray[data]: pip install 'ray[data]' numpy pillow"
fi
echo "1..$number"
