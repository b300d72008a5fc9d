#!/usr/bin/env python3
"""A library of pictures of all kinds, sizes and orientations, damaged ones and strangers among them: the rows of one call are those of one
call a picture, bit for bit, and what is not embedded is the same.

Needs Pillow with AVIF. usage: check_library.py MEGAVIT MODEL COUNT [FOLDER]    FOLDER is kept, and used again where it is there"""
import json
import math
import pathlib
import random
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

from PIL import Image

HERE = pathlib.Path(__file__).parent / "pictures"


def picture(rng, mode):
    """Blocks of noise, enlarged: edges and smooth parts, quickly made."""
    width, height = (min(3000, int(math.exp(rng.gauss(5.3, 0.7))) + 8) for _ in range(2))
    small = Image.frombytes(mode, (8, 6), rng.randbytes(48 * len(Image.new(mode, (1, 1)).tobytes())))
    return small.resize((width, height), Image.Resampling.BICUBIC)


def exif(rng):
    tags = Image.Exif()
    tags[274] = rng.choice([1, 1, 1, 2, 3, 4, 5, 6, 6, 7, 8, 8, 9])
    return tags


def write_jpeg(rng, path):
    mode = rng.choice(["RGB"] * 8 + ["L", "CMYK"])
    picture(rng, mode).save(path, "JPEG", quality=rng.randint(20, 98), progressive=rng.random() < 0.3, exif=exif(rng),
                            **({"subsampling": rng.choice([0, 1, 2])} if mode == "RGB" else {}))


def write_png(rng, path):
    made = picture(rng, rng.choice(["RGB", "RGBA", "L", "LA"]))
    if rng.random() < 0.2:
        made = made.convert("RGB").quantize(rng.choice([2, 4, 16, 256]))
    made.save(path, "PNG", compress_level=1, exif=exif(rng))


def write_webp(rng, path):
    made = picture(rng, rng.choice(["RGB", "RGBA"]))
    more = {"save_all": True, "append_images": [made.transpose(Image.Transpose.FLIP_TOP_BOTTOM)]} if rng.random() < 0.2 else {}
    made.save(path, "WEBP", lossless=rng.random() < 0.3, quality=rng.randint(30, 95), method=0, exif=exif(rng), **more)


def write_gif(rng, path):
    picture(rng, "RGB").quantize(64).save(path, "GIF", save_all=True, append_images=[picture(rng, "RGB").quantize(16)])


def write_tiff(rng, path):
    made = picture(rng, rng.choice(["RGB", "RGBA", "L"]))
    made.save(path, "TIFF", compression=rng.choice(["raw", "tiff_lzw", "tiff_adobe_deflate", "packbits"]))


KINDS = [(50, write_jpeg, ["jpg", "JPG", "jpeg", "jfif"]), (18, write_png, ["png"]), (10, write_webp, ["webp"]),
         (3, lambda rng, path: picture(rng, "RGB").save(path, "AVIF", speed=10, quality=50), ["avif"]), (4, write_gif, ["gif"]),
         (4, write_tiff, ["tif", "tiff"]), (2, lambda rng, path: picture(rng, "RGB").save(path, "BMP"), ["bmp"]),
         (1, lambda rng, path: picture(rng, "RGB").save(path, "PPM"), ["ppm"]),
         (1, lambda rng, path: picture(rng, "RGBA").save(path, "TGA"), ["tga"])]


def write_one(folder, number):
    rng = random.Random(number)
    sub = folder / f"{rng.randint(2015, 2026)}" / rng.choice(["summer", "räv", "a b"])
    sub.mkdir(parents=True, exist_ok=True)
    if rng.random() < 0.07:  # the small ones of every kind that the tests have, HEIC and damaged ones among them
        stored = rng.choice(sorted(p for p in HERE.iterdir() if p.suffix not in (".txt", ".py", ".c")))
        (sub / f"{number:05}-{stored.name}").write_bytes(stored.read_bytes())
        return
    _, write, suffixes = rng.choices(KINDS, [k[0] for k in KINDS])[0]
    path = sub / f"IMG_{number:05}.{rng.choice(suffixes)}"
    write(rng, path)
    if rng.random() < 0.02:  # a copy that was broken off
        whole = path.read_bytes()
        path.write_bytes(whole[: rng.randrange(len(whole))])


def embed(program, model, arguments):
    ran = subprocess.run([program, "embed", "--model", model, "--format", "jsonl", *arguments], capture_output=True)
    assert ran.returncode in (0, 2), ran
    return ran.stdout, ran.stderr


def main():
    program, model, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with tempfile.TemporaryDirectory() as made:
        folder = pathlib.Path(sys.argv[4] if len(sys.argv) > 4 else made)
        if not any(folder.glob("*")):
            folder.mkdir(parents=True, exist_ok=True)
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(lambda number: write_one(folder, number), range(count)))
        files = sorted(str(p) for p in folder.rglob("*") if p.is_file())
        assert len(files) == count, len(files)
        rows, said = embed(program, model, [str(folder)])
        together = {json.loads(line)["file"]: line for line in rows.splitlines(keepends=True)}
        one, _ = embed(program, model, ["--threads", "1", "--batch", "1", str(folder)])
        assert one == rows, "one thread, a batch of one"
        with ThreadPoolExecutor(2) as pool:
            single = list(pool.map(lambda name: embed(program, model, [name]), files))
        for name, (row, error) in zip(files, single):
            assert row == together.get(name, b""), name
            assert row or error.strip(), name
        assert len(together) > count * 0.9 and said
        print(f"{count} pictures, {len(together)} rows, {count - len(together)} refused, the same one by one")


main()
