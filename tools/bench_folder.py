"""Sets `megavit embed` beside the same work in Python, whole processes in turns on the same cores: a folder of JPEG and PNG files of mixed
sizes to pooled rows, with transformers' image processor and SiglipVisionModel in fp32, batches of 8.

    python tools/bench_folder.py --binary build/megavit --model DIR --pictures DIR [--threads 2] [--rounds 3] [--precision fast]
    python tools/bench_folder.py --pictures DIR --make 60 FILE...

--model: tools/bench/make_model.py makes one of SigLIP2-base's shape. --make: so many pictures from these, resized, with grain on them, so
that a file is as large as a photograph's. Seconds of the wall and of the processor are told of each process, the least of all rounds is
compared, and rows must agree: the least cosine is 0.9999; with --precision fast, beside which Python runs in bfloat16, 0.999. Needs torch, transformers, numpy and pillow.
"""
import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import numpy as np
from PIL import Image

SIZES = [(320, 240), (640, 480), (480, 640), (800, 600), (1024, 768), (1280, 720), (1600, 1200), (500, 375), (224, 224), (1920, 1080)]
PROCESSOR = dict(image_processor_type="SiglipImageProcessor", do_resize=True, size=dict(height=224, width=224), resample=2, do_rescale=True,
                 rescale_factor=1 / 255, do_normalize=True, image_mean=[0.5] * 3, image_std=[0.5] * 3)


def make(folder, count, sources):
    """Two JPEGs, then a PNG."""
    folder.mkdir(parents=True, exist_ok=True)
    generator = np.random.default_rng(1)
    for i in range(count):
        width, height = SIZES[i % len(SIZES)]
        picture = np.asarray(Image.open(sources[i % len(sources)]).convert("RGB").resize((width, height), Image.BICUBIC))
        grainy = Image.fromarray((picture + generator.normal(0, 6, picture.shape)).clip(0, 255).astype(np.uint8))
        if i % 3 == 2:
            grainy.save(folder / f"{i:03}.png")
        else:
            grainy.save(folder / f"{i:03}.jpg", quality=90)


def theirs(model, pictures, threads, precision, out):
    """What a user of transformers writes, in a process of its own."""
    import torch
    from transformers import AutoImageProcessor, SiglipVisionModel

    torch.set_num_threads(threads)
    processor = AutoImageProcessor.from_pretrained(model)
    dtype = torch.bfloat16 if precision == "fast" else torch.float32
    tower = SiglipVisionModel.from_pretrained(model, dtype=dtype).eval()
    files, rows = sorted(pictures.iterdir()), []
    with torch.inference_mode():
        for i in range(0, len(files), 8):
            pixels = processor(images=[Image.open(file).convert("RGB") for file in files[i : i + 8]], return_tensors="pt")["pixel_values"]
            rows.append(tower(pixel_values=pixels.to(dtype)).pooler_output.float())
    np.save(out, torch.cat(rows).numpy())


def timed(command):
    """Seconds of the wall and of the processor, the command's and its children's."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wall, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="build/megavit")
    parser.add_argument("--model", type=pathlib.Path)
    parser.add_argument("--pictures", type=pathlib.Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precision", choices=["auto", "fast"], default="auto")
    parser.add_argument("--make", type=int, metavar="N")
    parser.add_argument("--theirs", metavar="FILE", help="write their rows, and nothing else")
    parser.add_argument("files", nargs="*")
    given = parser.parse_args()
    if given.make:
        return make(given.pictures, given.make, given.files)
    if not (given.model / "preprocessor_config.json").exists():
        (given.model / "preprocessor_config.json").write_text(json.dumps(PROCESSOR))
    if given.theirs:
        return theirs(given.model, given.pictures, given.threads, given.precision, given.theirs)

    with tempfile.TemporaryDirectory() as folder:
        rows = {name: f"{folder}/{name}.npy" for name in ("megavit", "Python")}
        same = ["--model", str(given.model), "--threads", str(given.threads), "--precision", given.precision]
        commands = {"megavit": [given.binary, "embed", *same, "--batch", "8", "-o", rows["megavit"], str(given.pictures)],
                    "Python": [sys.executable, __file__, *same, "--pictures", str(given.pictures), "--theirs", rows["Python"]]}
        best = {name: (float("inf"), float("inf")) for name in commands}
        for i in range(given.rounds):
            for name, command in commands.items():
                seconds = timed(command)
                best[name] = tuple(map(min, best[name], seconds))
                load = os.getloadavg()[0]
                print(f"round {i + 1}, {name}: {seconds[0]:.1f} s, of the processor {seconds[1]:.1f} s, load {load:.1f}", flush=True)
        ours, other = np.load(rows["megavit"]), np.load(rows["Python"])
        cosine = (ours * other).sum(1) / np.linalg.norm(ours, axis=1) / np.linalg.norm(other, axis=1)
        print(f"{len(ours)} rows, least cosine {cosine.min():.7f}, relative L2 {np.linalg.norm(ours - other) / np.linalg.norm(other):.1e}")
        for i, what in enumerate(("wall", "processor")):
            least = best["megavit"][i], best["Python"][i]
            print(f"{what}: megavit {least[0]:.1f} s, Python {least[1]:.1f} s, {least[1] / least[0]:.2f} times")
        if cosine.min() < (0.999 if given.precision == "fast" else 0.9999):
            sys.exit("rows differ")


if __name__ == "__main__":
    main()
