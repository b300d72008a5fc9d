#!/usr/bin/env python3
"""Writes tests/golden/processors.txt: what image processors of transformers make of pictures of random bytes, for the settings that
model directories have. Fields are separated by tabs: back-end, config.json, preprocessor_config.json, width, height, seed, rows and
columns of the answer (three planes, or patches) and a hash of its floats; or, in place of these three, "refused".
tests/test_processors.c reads it.

Needs transformers, torch and torchvision on x86 with AVX2. usage: make_processor_vectors.py"""
import json
import pathlib

import numpy as np
import torch
import torchvision
import PIL
import transformers
from PIL import Image
from transformers import (BitImageProcessor, BitImageProcessorPil, CLIPImageProcessor, CLIPImageProcessorPil, DINOv3ViTImageProcessor,
                          Qwen2VLImageProcessor, Qwen2VLImageProcessorPil, Siglip2ImageProcessor, Siglip2ImageProcessorPil,
                          SiglipImageProcessor, SiglipImageProcessorPil)

CLASSES = {
    "SiglipImageProcessor": (SiglipImageProcessorPil, SiglipImageProcessor),
    "CLIPImageProcessor": (CLIPImageProcessorPil, CLIPImageProcessor),
    "BitImageProcessor": (BitImageProcessorPil, BitImageProcessor),
    "DINOv3ViTImageProcessor": (None, DINOv3ViTImageProcessor),
    "Qwen2VLImageProcessor": (Qwen2VLImageProcessorPil, Qwen2VLImageProcessor),
    "Siglip2ImageProcessor": (Siglip2ImageProcessorPil, Siglip2ImageProcessor),
}
SIGLIP = {"model_type": "siglip_vision_model", "image_size": 64}
CLIP = {"model_type": "clip_vision_model", "image_size": 64}
DINOV2 = {"model_type": "dinov2", "image_size": 518}
DINOV3 = {"model_type": "dinov3_vit"}
QWEN2 = {"model_type": "qwen2_vl", "vision_config": {}}
QWEN3_5 = {"model_type": "qwen3_5", "vision_config": {}}
NAFLEX = {"model_type": "siglip2_vision_model"}
IMAGENET = {"image_mean": [0.485, 0.456, 0.406], "image_std": [0.229, 0.224, 0.225]}
EVERY = [(64, 64), (97, 61), (61, 97), (640, 30), (30, 640), (5, 3), (1, 1), (200, 301)]
SQUARE = [(64, 64), (97, 97), (5, 5)]
SMALL = [(64, 64), (63, 40), (40, 63), (20, 100), (101, 21), (33, 33), (200, 100)]
EDGE = {"size": {"shortest_edge": 64}, "crop_size": {"height": 64, "width": 64}}
# class, config.json, preprocessor_config.json without the class, sizes of pictures
CASES = [
    ("SiglipImageProcessor", SIGLIP, {"size": {"height": 64, "width": 64}}, EVERY),
    ("SiglipImageProcessor", SIGLIP, {"size": {"height": 64, "width": 64}, "resample": 2}, EVERY),
    ("SiglipImageProcessor", SIGLIP, {"size": {"height": 64, "width": 64}, "resample": 1}, EVERY),
    ("SiglipImageProcessor", SIGLIP, {"size": [64, 64], "image_mean": 0.25, "do_rescale": False}, EVERY[:3]),
    ("SiglipImageProcessor", SIGLIP, {"size": 64}, SQUARE),
    ("SiglipImageProcessor", SIGLIP, {"size": 64, "default_to_square": True}, EVERY[:3]),
    ("SiglipImageProcessor", SIGLIP, {"size": {"shortest_edge": 64}}, SQUARE),
    ("SiglipImageProcessor", SIGLIP, {"size": {"shortest_edge": 64, "longest_edge": 64}}, SQUARE),
    ("SiglipImageProcessor", SIGLIP, {"size": {"max_height": 64, "max_width": 80}}, SQUARE),
    ("SiglipImageProcessor", SIGLIP, {"size": {"shortest_edge": 80}, "do_center_crop": True, "crop_size": 64}, EVERY),
    ("SiglipImageProcessor", SIGLIP, {"size": {"height": 80, "width": 70}, "do_center_crop": True, "crop_size": [64, 64]}, EVERY),
    ("SiglipImageProcessor", SIGLIP, {"size": {"shortest_edge": 90, "longest_edge": 100}, "do_center_crop": True, "crop_size": 64}, EVERY),
    ("SiglipImageProcessor", SIGLIP, {"size": {"max_height": 50, "max_width": 90}, "do_center_crop": True, "crop_size": 64}, EVERY),
    ("SiglipImageProcessor", SIGLIP, {"do_resize": False}, [(64, 64)]),
    ("SiglipImageProcessor", SIGLIP, {"do_resize": False, "do_center_crop": True, "crop_size": 64}, SMALL),
    ("SiglipImageProcessor", SIGLIP, {"size": {"height": 64, "width": 64}, "do_pad": True}, EVERY[:2]),
    ("SiglipImageProcessor", SIGLIP, {"size": {"height": 64, "width": 64}, "do_pad": True, "pad_size": 64}, EVERY[:2]),
    ("SiglipImageProcessor", SIGLIP, {"size": {"height": 64}}, [(64, 64)]),
    ("SiglipImageProcessor", SIGLIP, {"size": {"longest_edge": 64}}, [(64, 64)]),
    ("SiglipImageProcessor", SIGLIP, {"size": {"height": 64, "width": 64, "shortest_edge": 64}}, [(64, 64)]),
    ("SiglipImageProcessor", SIGLIP, {"size": {"height": 0, "width": 64}}, [(64, 64)]),
    ("SiglipImageProcessor", SIGLIP, {"size": {"min_pixels": 64, "max_pixels": 4096}}, [(64, 64)]),
    ("SiglipImageProcessor", SIGLIP, {"size": {"side": 64}}, [(64, 64)]),
    ("SiglipImageProcessor", SIGLIP, {"size": {"height": 64, "width": 64}, "do_center_crop": True}, [(64, 64)]),
    ("SiglipImageProcessor", SIGLIP, {"size": {"height": 64, "width": 64}, "do_center_crop": True, "crop_size": {"shortest_edge": 64}},
     [(64, 64)]),
    ("SiglipImageProcessor", SIGLIP, {"size": {"height": 64, "width": 64}, "do_pad": True, "pad_size": 60}, [(64, 64)]),
    ("CLIPImageProcessor", CLIP, EDGE, EVERY),
    ("CLIPImageProcessor", CLIP, {"size": 64, "crop_size": 64, "resample": 3}, EVERY),
    ("CLIPImageProcessor", CLIP, {"size": 64, "crop_size": 64, "resample": 1, "do_normalize": False}, EVERY),
    ("CLIPImageProcessor", CLIP, {"size": {"shortest_edge": 71}, "crop_size": 64}, EVERY),
    ("BitImageProcessor", DINOV2, {"size": {"shortest_edge": 64}, "crop_size": {"height": 56, "width": 56}, **IMAGENET}, EVERY),
    ("BitImageProcessor", DINOV2, {"size": {"shortest_edge": 64}, "crop_size": {"height": 57, "width": 85}, **IMAGENET}, EVERY),
    ("BitImageProcessor", DINOV2, {"size": {"shortest_edge": 45}, "do_center_crop": False, **IMAGENET}, EVERY),
    ("BitImageProcessor", DINOV2, {"size": {"shortest_edge": 45, "longest_edge": 60}, "do_center_crop": False}, SMALL[:3]),
    ("BitImageProcessor", DINOV2, {"size": {"max_height": 61, "max_width": 83}, "do_center_crop": False}, SMALL[:3]),
    ("BitImageProcessor", DINOV2, {}, EVERY),
    ("DINOv3ViTImageProcessor", DINOV3, {"size": {"height": 64, "width": 64}}, EVERY),
    ("DINOv3ViTImageProcessor", DINOV3, {"size": {"height": 48, "width": 81}, "resample": 3}, EVERY),
    ("DINOv3ViTImageProcessor", DINOV3, {"size": {"shortest_edge": 50}, "do_center_crop": True, "crop_size": 48}, EVERY),
    ("DINOv3ViTImageProcessor", DINOV3, {"do_resize": False, "do_center_crop": True, "crop_size": 64, "do_normalize": False}, SMALL),
    ("DINOv3ViTImageProcessor", DINOV3, {"do_resize": False}, [(64, 64), (97, 61)]),
    ("DINOv3ViTImageProcessor", DINOV3, {}, [(640, 480), (100, 2000)]),
    ("Qwen2VLImageProcessor", QWEN2, {"min_pixels": 3136, "max_pixels": 40000}, EVERY[:3] + EVERY[5:]),
    ("Qwen2VLImageProcessor", QWEN2, {"size": {"shortest_edge": 3136, "longest_edge": 40000}, "resample": 1}, EVERY[:3]),
    ("Qwen2VLImageProcessor", QWEN2, {"size": {"min_pixels": 1, "max_pixels": 2}, "min_pixels": 3136, "max_pixels": 40000}, EVERY[:2]),
    ("Qwen2VLImageProcessor", QWEN2, {"do_resize": False}, [(56, 84)]),
    ("Qwen2VLImageProcessor", QWEN2, {"size": {"shortest_edge": 3136, "longest_edge": 40000}, "do_center_crop": True, "crop_size": 8},
     EVERY[:2]),
    ("Qwen2VLImageProcessor", QWEN2, {"size": {"shortest_edge": 3136}}, [(64, 64)]),
    ("Qwen2VLImageProcessor", QWEN2, {"size": {"height": 64, "width": 64}}, [(64, 64)]),
    ("Qwen2VLImageProcessor", QWEN2, {"size": 64}, [(64, 64)]),
    ("Qwen2VLImageProcessor", QWEN3_5, {"patch_size": 16, "size": {"shortest_edge": 65536, "longest_edge": 16777216},
                                        "image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}, EVERY[:3] + [(320, 200)]),
    ("Siglip2ImageProcessor", NAFLEX, {}, EVERY + [(480, 640), (1080, 1920)]),
    ("Siglip2ImageProcessor", NAFLEX, {"max_num_patches": 36, "resample": 3}, EVERY),
    ("Siglip2ImageProcessor", NAFLEX, {"max_num_patches": 1}, EVERY[:3]),
    ("Siglip2ImageProcessor", NAFLEX, {"do_resize": False}, [(64, 96)]),
]


def fnv1a(values):
    result = 0xCBF29CE484222325
    for value in values:
        result = (result ^ int(value)) * 0x100000001B3 % 2**64
    return f"{result:016x}"


def picture(seed, count):
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + (np.arange(count, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(56)).astype(np.uint8)


def answer(processor_class, keys, config, width, height, seed):
    """Rows, columns and hash; or "refused". NaFlex's padding is left out: it is no patch."""
    image = Image.fromarray(picture(seed, width * height * 3).reshape(height, width, 3))
    try:
        processor = processor_class(**keys)
        made = processor(image, return_tensors="np")
    except Exception:
        return ("refused",)
    values = np.asarray(made["pixel_values"], np.float32)
    if "spatial_shapes" in made:
        values = values[0, : int(np.prod(made["spatial_shapes"][0]))]
    elif values.ndim == 4:
        values = values[0].reshape(-1, values.shape[-1])
    return (*map(str, values.shape), fnv1a(np.ascontiguousarray(values).view(np.uint32).reshape(-1)))


def main():
    assert torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512"), "torchvision resizes in uint8 only with AVX2"
    versions = f"Pillow {PIL.__version__}, torch {torch.__version__}, torchvision {torchvision.__version__}"
    lines = [f"# made by tests/make_processor_vectors.py with {versions}, transformers {transformers.__version__}"]
    seed = 0
    for name, config, keys, sizes in CASES:
        for width, height in sizes:
            seed += 1
            for backend, processor_class in zip(("pillow", "torchvision"), CLASSES[name]):
                if processor_class is None:
                    continue
                text = json.dumps({"image_processor_type": name, **keys})
                fields = answer(processor_class, json.loads(json.dumps(keys)), config, width, height, seed)
                lines.append("\t".join((backend, json.dumps(config), text, str(width), str(height), str(seed), *fields)))
    path = pathlib.Path(__file__).parent / "golden" / "processors.txt"
    path.write_text("\n".join(lines) + "\n")
    print(f"{len(lines)} lines, {path.stat().st_size} bytes: {path}")


if __name__ == "__main__":
    main()
