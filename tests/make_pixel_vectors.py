"""Makes tests/golden/pixels/vectors.txt: what Pillow, torchvision and transformers make of pictures that a rule makes.

    python tests/make_pixel_vectors.py

Byte i of picture SEED is the top byte of splitmix64(SEED + (i + 1) * 0x9E3779B97F4A7C15); in a hard picture it is 0 or 255, by its top
bit. Lines (C: tests/test_pixels.c):

    # TEXT                                            how the file came to be
    resize BACKEND FILTER W H NEW_W NEW_H HARD SEED DATA
                                                      8-bit RGB; DATA: x and the bytes in hex, or # and their FNV-1a hash
    values BACKEND RESCALE NORMALIZE FACTOR MEAN... STD... HASH...
                                                      what bytes 0 to 255 become in R, G and B: FNV-1a over float32 words
    grid FACTOR MIN MAX W H NEW_W NEW_H               smart_resize; 0 0: refused
    clip_grid FACTOR MIN MAX FRAMES W H NEW_W NEW_H   smart_resize of Qwen3-VL's video processor, whose limits are on frames * H * W
    model BACKEND FORMAT FILTER FIXED_W FIXED_H PATCH MERGE TEMPORAL MIN MAX CLIP_LIMITS W H FRAMES SEED LAYOUT ROWS COLUMNS HASH
                                                      pixel_values of a whole processor, mean and std 0.5: FNV-1a over float32 words
"""
import pathlib

import numpy as np
import PIL
import torch
import torchvision
import transformers
from PIL import Image
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as tv
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor, smart_resize
from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor
from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor
from transformers.models.qwen3_vl.video_processing_qwen3_vl import smart_resize as smart_resize_clip
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
from transformers.models.siglip.image_processing_siglip import SiglipImageProcessor

BACKENDS = ("pillow", "torchvision")
FILTERS = {2: (Image.Resampling.BILINEAR, InterpolationMode.BILINEAR), 3: (Image.Resampling.BICUBIC, InterpolationMode.BICUBIC)}
FORMATS = {"RGB": 3, "RGBA": 4, "L": 1, "LA": 2}
CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)

SIZES = [
    # the same size, and one axis only
    (7, 5, 7, 5), (7, 5, 7, 9), (7, 5, 11, 5), (7, 5, 7, 2), (7, 5, 3, 5), (1, 1, 1, 2), (64, 48, 64, 47), (64, 48, 63, 48),
    # up and down, together and against each other
    (7, 5, 14, 10), (7, 5, 3, 2), (5, 3, 130, 130), (100, 80, 14, 14), (33, 65, 65, 33), (65, 33, 33, 65), (17, 19, 224, 224), (300, 200, 224, 224),
    (640, 480, 224, 224), (480, 640, 224, 224), (513, 511, 256, 256), (255, 257, 256, 256), (223, 225, 224, 224), (1000, 999, 32, 32),
    # one pixel wide, one pixel high, one pixel
    (1, 1, 5, 7), (1, 1, 224, 224), (1, 300, 14, 14), (300, 1, 14, 14), (1, 2000, 16, 16), (2000, 1, 16, 16), (2, 3, 1, 4), (9, 2, 4, 1), (50, 50, 1, 3),
    # the border of Pillow 13's rule for the order of the passes: H - h against 2 (W - w)
    (40, 60, 30, 40), (40, 61, 30, 40), (40, 60, 30, 39), (40, 59, 30, 40), (20, 40, 30, 39), (20, 40, 30, 41), (24, 30, 30, 29), (120, 216, 20, 16),
    (120, 217, 20, 16), (54, 96, 28, 28), (60, 300, 70, 20), (3, 299, 30, 20), (3, 300, 2, 20), (3, 301, 1, 20), (10, 1001, 12, 24),
    # windows of many hundred samples
    (3000, 9, 4, 4), (9, 3000, 4, 4), (5000, 2, 3, 5), (2, 5000, 5, 3),
]

LIMITS = [(32, 65536, 16777216), (28, 3136, 12845056), (28, 3136, 1003520), (32, 4096, 65536)]
GRID_SIZES = [
    (640, 480), (1920, 1080), (1280, 720), (100, 100), (80, 48), (4000, 5000), (3000, 17), (20, 20), (1, 1), (1, 200), (1, 201), (200, 1), (201, 1),
    (16, 16), (48, 48), (80, 80), (112, 112), (176, 208), (15, 2999), (15, 3000), (15, 3001), (16, 3200), (14, 2800), (42, 70), (70, 98), (3584, 3584),
    (4096, 4096), (4097, 4095), (8192, 40), (40, 8000), (65536, 65536), (16777216, 16777216), (16777216, 83887), (31, 32), (33, 31),
]


def fnv1a(values):
    result = 0xCBF29CE484222325
    for value in values:
        result = (result ^ int(value)) * 0x100000001B3 % 2**64
    return f"{result:016x}"


def float_hash(values):
    return fnv1a(np.ascontiguousarray(values, np.float32).view(np.uint32).reshape(-1))


def picture(seed, count, hard=False):
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + (np.arange(count, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    data = (z >> np.uint64(56)).astype(np.uint8)
    return (data >> 7) * np.uint8(255) if hard else data


def resize_lines():
    for seed, (width, height, new_width, new_height) in enumerate(SIZES):
        for hard in (0, 1):
            data = picture(seed, width * height * 3, hard).reshape(height, width, 3)
            for number, (pillow_filter, torch_filter) in FILTERS.items():
                answers = {"pillow": np.asarray(Image.fromarray(data).resize((new_width, new_height), pillow_filter))}
                # A tensor over rows of RGB pixels, as the processors make it of a Pillow picture.
                tensor = torch.from_numpy(data).permute(2, 0, 1)
                answers["torchvision"] = tv.resize(tensor, [new_height, new_width], torch_filter, antialias=True).permute(1, 2, 0).numpy()
                for backend, answer in answers.items():
                    answer = np.ascontiguousarray(answer)
                    text = "x" + answer.tobytes().hex() if answer.size <= 96 else "#" + fnv1a(answer.reshape(-1))
                    yield f"resize {backend} {number} {width} {height} {new_width} {new_height} {hard} {seed} {text}"


def siglip(backend, **keys):
    return (SiglipImageProcessorPil if backend == "pillow" else SiglipImageProcessor)(**keys)


def qwen(backend, **keys):
    return (Qwen2VLImageProcessorPil if backend == "pillow" else Qwen2VLImageProcessor)(**keys)


def value_lines():
    ramp = Image.fromarray(np.arange(256, dtype=np.uint8).reshape(16, 16)).convert("RGB")
    norms = [((0.5,) * 3, (0.5,) * 3), (CLIP_MEAN, CLIP_STD), ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)), ((0.0, -1.5, 1.0), (1.0, 1 / 3, 7.1))]
    for backend in BACKENDS:
        for factor in (1 / 255, 1 / 127.5, 0.0037):
            for rescale, normalize in ((1, 1), (1, 0), (0, 1), (0, 0)):
                for mean, std in norms:
                    processor = siglip(backend, do_resize=False, do_rescale=bool(rescale), rescale_factor=factor, do_normalize=bool(normalize),
                                       image_mean=list(mean), image_std=list(std))
                    answer = np.asarray(processor(ramp, return_tensors="np")["pixel_values"][0])
                    numbers = " ".join(repr(float(v)) for v in (factor, *mean, *std))
                    yield f"values {backend} {rescale} {normalize} {numbers} " + " ".join(float_hash(answer[c]) for c in range(3))


def refusable(function, *arguments, **keys):
    """(height, width), or (0, 0) where transformers raises."""
    try:
        return function(*arguments, **keys)
    except ValueError:
        return 0, 0


def grid_lines():
    rng = np.random.default_rng(5)
    sizes = GRID_SIZES + [tuple(int(v) for v in 2 ** rng.uniform(0, 13, 2)) for _ in range(150)]
    for factor, least, most in LIMITS:
        for width, height in sizes:
            new_height, new_width = refusable(smart_resize, height, width, factor, least, most)
            yield f"grid {factor} {least} {most} {width} {height} {new_width} {new_height}"
    for factor, least, most in ((32, 4096, 25165824), (32, 131072, 786432)):
        for i, (width, height) in enumerate(sizes):
            frames = (2, 3, 4, 5, 7, 64, 767)[i % 7]
            new_height, new_width = refusable(smart_resize_clip, frames, height, width, 2, factor, least, most)
            yield f"clip_grid {factor} {least} {most} {frames} {width} {height} {new_width} {new_height}"


def model_line(backend, mode, number, fixed, patch, merge, temporal, limits, clip_limits, size, frames, seed, layout, answer):
    answer = np.asarray(answer, np.float32)
    answer = answer.reshape(-1, answer.shape[-1])
    return (f"model {backend} {mode} {number} {fixed[0]} {fixed[1]} {patch} {merge} {temporal} {limits[0]} {limits[1]} {clip_limits} {size[0]} {size[1]} "
            f"{frames} {seed} {layout} {answer.shape[0]} {answer.shape[1]} {float_hash(answer)}")


def rows_of_patches(pixel_values, patch):
    """What a patch embedding reads: [h * w, 3 * patch * patch] in the order of the convolution's weight; trailing pixels are left out."""
    tensor = torch.as_tensor(np.asarray(pixel_values, np.float32))
    return torch.nn.functional.unfold(tensor, patch, stride=patch)[0].T.numpy()


def model_lines():
    seed = 1000
    for backend in BACKENDS:
        for mode, channels in FORMATS.items():
            for number, fixed, patch, size in ((3, (32, 32), 16, (45, 61)), (2, (70, 70), 14, (64, 33)), (2, (64, 48), 13, (64, 48)), (3, (61, 45), 14, (20, 170))):
                seed += 1
                data = picture(seed, size[0] * size[1] * channels).reshape(size[1], size[0], channels)
                image = Image.fromarray(data[..., 0] if channels == 1 else data, mode)
                values = siglip(backend, size={"width": fixed[0], "height": fixed[1]}, resample=number)(image, return_tensors="np")["pixel_values"]
                for layout, answer in (("chw", values), ("patches", rows_of_patches(values, patch))):
                    yield model_line(backend, mode, number, fixed, patch, 1, 1, (0, 0), 0, size, 1, seed, layout, answer)
            for patch, size in ((16, (100, 70)), (14, (61, 200)), (16, (64, 32)), (14, (3, 500))):
                seed += 1
                limits = (4096, 65536)
                data = picture(seed, size[0] * size[1] * channels).reshape(size[1], size[0], channels)
                image = Image.fromarray(data[..., 0] if channels == 1 else data, mode)
                processor = qwen(backend, patch_size=patch, size={"shortest_edge": limits[0], "longest_edge": limits[1]}, image_mean=[0.5] * 3, image_std=[0.5] * 3)
                answer = processor(image, return_tensors="np")["pixel_values"]
                yield model_line(backend, mode, 3, (0, 0), patch, 2, 2, limits, 0, size, 1, seed, "patches", answer)
    for kind, patch in ((Qwen2VLVideoProcessor, 14), (Qwen3VLVideoProcessor, 16)):
        for size, frames in (((100, 70), 4), ((61, 90), 5), ((64, 32), 2), ((40, 33), 3)):
            seed += 1
            limits = (2048, 20000) if patch == 14 else (8192, 50000)
            data = picture(seed, frames * size[0] * size[1] * 3).reshape(frames, size[1], size[0], 3)
            processor = kind(patch_size=patch, size={"shortest_edge": limits[0], "longest_edge": limits[1]}, image_mean=[0.5] * 3, image_std=[0.5] * 3)
            clip = torch.from_numpy(data).permute(0, 3, 1, 2)
            answer = processor([clip], do_sample_frames=False, cap_pixels_per_frame=False, return_tensors="np")["pixel_values_videos"]
            yield model_line("torchvision", "RGB", 3, (0, 0), patch, 2, 2, limits, int(patch == 16), size, frames, seed, "patches", answer)


def main():
    path = pathlib.Path(__file__).parent / "golden" / "pixels" / "vectors.txt"
    path.parent.mkdir(parents=True, exist_ok=True)
    versions = f"Pillow {PIL.__version__}, torch {torch.__version__}, torchvision {torchvision.__version__}, transformers {transformers.__version__}"
    capability = torch.backends.cpu.get_cpu_capability()
    assert capability in ("AVX2", "AVX512"), "torchvision resizes bilinearly in uint8 only with AVX2"
    lines = [f"# made by tests/make_pixel_vectors.py with {versions}, {capability}"]
    for make in (resize_lines, value_lines, grid_lines, model_lines):
        lines.extend(make())
    path.write_text("\n".join(lines) + "\n")
    print(f"{len(lines)} lines, {path.stat().st_size} bytes: {path}")


main()
