#!/usr/bin/env python3
"""Writes tests/golden/photos: a picture like a photo as JPEG, PNG and WebP, and answers.txt, what transformers' processors make of the
opened files. Fields are separated by tabs: back-end, file, preprocessor_config.json, and a hash of the floats.
tests/test_cli_directories.c reads it.

Needs transformers, torch and torchvision on x86 with AVX2, and Pillow 13. usage: make_photo_vectors.py"""
import json
import pathlib

import numpy as np
from PIL import Image
from transformers import CLIPImageProcessor, CLIPImageProcessorPil, SiglipImageProcessor, SiglipImageProcessorPil

SETTINGS = [
    ((SiglipImageProcessorPil, SiglipImageProcessor), {"image_processor_type": "SiglipImageProcessor",
                                                       "size": {"height": 40, "width": 40}}),
    ((CLIPImageProcessorPil, CLIPImageProcessor), {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 46},
                                                   "crop_size": {"height": 40, "width": 40}}),
]
FILES = {"photo.jpg": {"quality": 85}, "photo.png": {"optimize": True}, "photo.webp": {"quality": 80}}


def fnv1a(values):
    result = 0xCBF29CE484222325
    for value in values:
        result = (result ^ int(value)) * 0x100000001B3 % 2**64
    return f"{result:016x}"


def photo():
    """Smooth light, edges and a little noise."""
    y, x = np.mgrid[0:75, 0:100]
    noise = np.random.default_rng(7).normal(0, 3, (75, 100, 3))
    light = np.stack([128 + 90 * np.sin(x / (13 + c) + c) * np.cos(y / (17 - c)) for c in range(3)], -1)
    light[(x - 60) ** 2 + (y - 30) ** 2 < 400] += [60, -40, -70]
    return Image.fromarray(np.clip(light + noise, 0, 255).astype(np.uint8))


def main():
    folder = pathlib.Path(__file__).parent / "golden" / "photos"
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for name, options in FILES.items():
        photo().save(folder / name, **options)
        for classes, keys in SETTINGS:
            for backend, processor in zip(("pillow", "torchvision"), classes):
                arguments = {key: value for key, value in keys.items() if key != "image_processor_type"}
                with Image.open(folder / name) as opened:
                    values = np.asarray(processor(**arguments)(opened, return_tensors="np")["pixel_values"], np.float32)
                lines.append("\t".join((backend, name, json.dumps(keys), fnv1a(np.ascontiguousarray(values).view(np.uint32).reshape(-1)))))
    (folder / "answers.txt").write_text("\n".join(lines) + "\n")


main()
