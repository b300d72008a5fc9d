"""examples/cluster/embed_directory.py on two workers of a local Ray: one dies in the middle, a file is no picture, and a run that was cut
off goes on.

    cluster.py build/megavit, with MEGAVIT_LIBRARY and with examples/cluster and tests in PYTHONPATH, where the workers look, too
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile

import numpy
import pyarrow.parquet
import ray

import embed_directory

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
EACH = 6


class Dying(embed_directory.Embedder):
    """The process ends at once when it comes to the second shard, the first time."""

    def shard(self, number, names):
        mark = os.path.join(self.out, "died")
        if number == 1 and not os.path.exists(mark):
            open(mark, "w").close()
            os._exit(1)
        return super().shard(number, names)


def embed(out, folder, *more):
    sys.argv = ["embed_directory.py", "--model", os.path.join(ROOT, "examples", "model"), "--backend", "cpu", "--out", out,
                "--shard", str(EACH), "--batch", "4", "--workers", "2", *more, folder]
    embed_directory.main()


def rows_of(out):
    rows = {}
    for file in sorted(os.listdir(out)):
        if not file.endswith(".parquet"):
            continue
        table = pyarrow.parquet.read_table(os.path.join(out, file)).to_pydict()
        for name, row in zip(table["name"], table["embedding"]):
            assert name not in rows, name + " is there twice"
            rows[name] = numpy.array(row, numpy.float32)
    return rows


def main():
    embed_directory.Embedder = Dying
    with tempfile.TemporaryDirectory() as scratch:
        folder, out = os.path.join(scratch, "pictures"), os.path.join(scratch, "rows")
        shutil.copytree(os.path.join(ROOT, "examples", "pictures"), folder, ignore=shutil.ignore_patterns("*.md", "*.txt"))
        os.makedirs(os.path.join(folder, "more"))
        shutil.copy(os.path.join(folder, "red-circle.png"), os.path.join(folder, "more", "again.png"))
        with open(os.path.join(folder, "broken.png"), "w") as file:
            file.write("no picture")
        names = [name for name in embed_directory.pictures_of(folder) if name != "broken.png"]
        assert len(names) > 2 * EACH
        ray.init(num_cpus=2, object_store_memory=80 << 20, include_dashboard=False, log_to_driver=False)
        embed(out, folder)
        assert os.path.exists(os.path.join(out, "died")), "no worker died"
        rows = rows_of(out)
        assert sorted(rows) == names, "each picture is one row"
        said = subprocess.run([BINARY, "embed", "--model", os.path.join(ROOT, "examples", "model"), "--format", "jsonl",
                               *[os.path.join(folder, name) for name in names]], check=True, capture_output=True, text=True).stdout
        for name, line in zip(names, said.splitlines()):
            assert numpy.array_equal(rows[name], numpy.array(json.loads(line)["embedding"], numpy.float32)), name
        failed = [file for file in os.listdir(out) if file.startswith("failed")]
        assert len(failed) == 1 and open(os.path.join(out, failed[0])).read().startswith("broken.png: ")

        before = {file: os.stat(os.path.join(out, file)).st_mtime_ns for file in os.listdir(out)}  # as if it had been cut off
        os.remove(os.path.join(out, "shard-00002.parquet"))
        embed(out, folder)
        after = {file: os.stat(os.path.join(out, file)).st_mtime_ns for file in os.listdir(out)}
        assert sorted(after) == sorted(before)
        assert [file for file in after if after[file] != before[file]] == ["shard-00002.parquet"], "only what was missing is made"
        again = rows_of(out)
        assert sorted(again) == names and all(numpy.array_equal(again[name], rows[name]) for name in names)
        embed(out, folder)  # nothing is left to do

        os.remove(os.path.join(folder, names[0]))  # another list is not mixed with this one
        try:
            embed(out, folder)
        except SystemExit as error:
            assert "use a new folder" in str(error)
        else:
            raise AssertionError("other pictures were taken into the same shards")
        ray.shutdown()


if __name__ == "__main__":
    BINARY = sys.argv[1]
    main()
