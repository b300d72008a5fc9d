"""Embeddings of a directory's pictures on the machines of a Ray cluster, or on this one.

    pip install 'ray[data]' numpy pillow
    MEGAVIT_LIBRARY=/path/to/libmegavit.so python embed_directory.py --model DIR --out rows/ PICTURES

Each shard is so many pictures that follow each other in the sorted list of names, and one file: shard-00000.parquet with the columns name
and embedding, which appears when it is whole. So each picture is one row, a worker or a machine that dies costs its shard another try, and
the same command after a crash makes what is missing. What cannot be read is a line of failed-00000.txt beside its shard. Ray Data deals
out the shards and keeps one engine a worker; the directories must be the same ones on all machines (NFS, or the like).
"""
import argparse
import json
import os
import sys

import ray

MODULE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python")  # on every machine, as the pictures are


def pictures_of(folder, extensions=(".jpg", ".jpeg", ".png", ".webp", ".ppm", ".tif", ".tiff", ".bmp", ".gif")):
    """Names below the folder, sorted: the same list in every run, as long as nothing comes or goes."""
    found = []
    for where, folders, files in os.walk(folder):
        folders.sort()
        found += [os.path.relpath(os.path.join(where, f), folder) for f in files if f.lower().endswith(extensions)]
    return sorted(found)


def shard_path(out, number, kind="shard", end="parquet"):
    return os.path.join(out, "%s-%05d.%s" % (kind, number, end))


def write_whole(path, write):
    """The file appears when it is whole; whoever comes second writes the same."""
    new = "%s.%d.new" % (path, os.getpid())
    write(new)
    os.replace(new, path)


class Embedder:
    """Lives in a worker of Ray and keeps its engine from shard to shard."""

    def __init__(self, module, library, model, folder, out, backend, batch, threads):
        sys.path.insert(0, module)
        if library:
            os.environ["MEGAVIT_LIBRARY"] = library
        import megavit
        self.folder, self.out, self.batch = folder, out, batch
        self.engine = megavit.Engine(megavit.Model(model), backend=backend, max_images=batch, threads=threads)

    def read(self, name):
        import numpy
        from PIL import Image, ImageOps
        with Image.open(os.path.join(self.folder, name)) as picture:
            picture = ImageOps.exif_transpose(picture)
            return numpy.asarray(picture.convert("RGBA" if "A" in picture.getbands() else "RGB"))

    def shard(self, number, names):
        import pyarrow
        import pyarrow.parquet
        rows, kept, failed, waiting = [], [], [], []

        def encode():
            if waiting:
                rows.extend(self.engine.encode([picture for _, picture in waiting]))
                kept.extend(name for name, _ in waiting)
                waiting.clear()

        for name in names:
            try:
                waiting.append((name, self.read(name)))
            except (OSError, ValueError, SyntaxError) as error:  # what Pillow says of files that are none of its pictures
                failed.append("%s: %s" % (name, error))
            if len(waiting) == self.batch:
                encode()
        encode()
        table = pyarrow.table({"name": pyarrow.array(kept, pyarrow.string()),
                               "embedding": pyarrow.array([row.tolist() for row in rows], pyarrow.list_(pyarrow.float32()))})
        if failed:
            write_whole(shard_path(self.out, number, "failed", "txt"), lambda new: open(new, "w").write("\n".join(failed) + "\n"))
        write_whole(shard_path(self.out, number), lambda new: pyarrow.parquet.write_table(table, new))
        return len(kept), len(failed)

    def __call__(self, block):
        done = [self.shard(int(number), json.loads(names)) for number, names in zip(block["shard"], block["names"])]
        return {"shard": block["shard"], "pictures": [d[0] for d in done], "failed": [d[1] for d in done]}


def plan(out, pictures, each):
    """The list that shards are numbered by is kept with them: another list, or other shards, is another folder's."""
    kept = os.path.join(out, "pictures.json")
    wanted = {"pictures": pictures, "each": each}
    if os.path.exists(kept):
        with open(kept) as file:
            if json.load(file) != wanted:
                raise SystemExit("%s is of other pictures, or of shards of another length: use a new folder" % out)
    else:
        write_whole(kept, lambda new: json.dump(wanted, open(new, "w")))
    shards = [(number, pictures[at:at + each]) for number, at in enumerate(range(0, len(pictures), each))]
    return [(number, names) for number, names in shards if not os.path.exists(shard_path(out, number))]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", metavar="PICTURES")
    parser.add_argument("--model", required=True)
    parser.add_argument("--out", required=True, help="folder of the rows")
    parser.add_argument("--backend", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--shard", type=int, default=1000, metavar="N", help="pictures of one file, and of one try (1000)")
    parser.add_argument("--batch", type=int, default=64, metavar="N", help="pictures in one encode (64)")
    parser.add_argument("--workers", type=int, default=0, metavar="N", help="engines (one a GPU of the cluster, or one a CPU)")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="threads of an engine on the CPU (1)")
    parser.add_argument("--tries", type=int, default=3, metavar="N", help="of a shard whose worker dies (3)")
    parser.add_argument("--address", help="of a cluster; without it Ray starts on this machine")
    arguments = parser.parse_args()
    folder, out = os.path.abspath(arguments.folder), os.path.abspath(arguments.out)
    os.makedirs(out, exist_ok=True)
    left = plan(out, pictures_of(folder), arguments.shard)
    if not left:
        print("all shards are there")
        return
    if not ray.is_initialized():
        ray.init(address=arguments.address, log_to_driver=False, include_dashboard=False)
    gpus = int(ray.cluster_resources().get("GPU", 0)) if arguments.backend != "cpu" else 0
    workers = arguments.workers or gpus or int(ray.cluster_resources()["CPU"] // arguments.threads) or 1
    table = [{"shard": number, "names": json.dumps(names)} for number, names in left]
    rows = ray.data.from_items(table, override_num_blocks=len(table)).map_batches(
        Embedder, batch_size=1, concurrency=min(workers, len(table)), num_cpus=arguments.threads, num_gpus=1 if gpus else 0,
        fn_constructor_args=(MODULE, os.environ.get("MEGAVIT_LIBRARY"), os.path.abspath(arguments.model), folder, out,
                             arguments.backend, arguments.batch, arguments.threads),
        max_restarts=-1, max_task_retries=arguments.tries - 1)
    pictures = failed = 0
    for row in rows.iter_rows():
        pictures += row["pictures"]
        failed += row["failed"]
    print("%d pictures in %d shards, %d could not be read" % (pictures, len(left), failed))


if __name__ == "__main__":
    main()
