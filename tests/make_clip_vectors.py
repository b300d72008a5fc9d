#!/usr/bin/env python3
"""Writes tests/golden/clips.txt: what video processors of transformers make of clips of random bytes, under settings that are not those of
the directory's image processor. Fields are separated by tabs: config.json, video_preprocessor_config.json, width, height, frames, seed, rows
and columns of the answer and a hash of its floats. tests/test_clips.c reads it.

Needs transformers, torch and torchvision on x86 with AVX2. usage: make_clip_vectors.py"""
import json
import pathlib

import numpy as np
import torch
import torchvision
import transformers
from transformers import Qwen2VLVideoProcessor, Qwen3VLVideoProcessor

from make_processor_vectors import fnv1a, picture

QWEN2 = {"model_type": "qwen2_vl", "vision_config": {}}, Qwen2VLVideoProcessor, {"size": {"shortest_edge": 3136, "longest_edge": 20000}}
QWEN2_5 = {"model_type": "qwen2_5_vl", "vision_config": {}}, Qwen2VLVideoProcessor, {"size": {"shortest_edge": 3136, "longest_edge": 20000}}
QWEN3 = {"model_type": "qwen3_vl", "vision_config": {}}, Qwen3VLVideoProcessor, {"size": {"shortest_edge": 8192, "longest_edge": 50000},
                                                                                "patch_size": 16}
SETTINGS = [
    {},
    {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]},
    {"resample": 2},
    {"resample": 1, "do_normalize": False},
    {"do_rescale": False, "image_mean": 100, "image_std": 7},
    {"rescale_factor": 0.01},
]
CAPPED = [{"cap_pixels_per_frame": True}, {"cap_pixels_per_frame": True, "max_video_tokens": 9},
          {"cap_pixels_per_frame": True, "max_video_tokens": 4, "image_mean": 0.25}]
CLIPS = [(100, 70, 4), (61, 90, 5), (64, 32, 2), (40, 33, 3), (300, 200, 6)]


def main():
    assert torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512"), "torchvision resizes in uint8 only with AVX2"
    lines = [f"# made by tests/make_clip_vectors.py with torch {torch.__version__}, torchvision {torchvision.__version__}, transformers "
             f"{transformers.__version__}"]
    seed = 0
    for config, kind, always in (QWEN2, QWEN2_5, QWEN3):
        cases = [(keys, CLIPS[:2] + CLIPS[4:] if keys else CLIPS) for keys in SETTINGS] + [({"do_resize": False}, [(64, 96, 4)] if kind is
                 Qwen3VLVideoProcessor else [(56, 84, 4)])]
        cases += [(keys, CLIPS) for keys in CAPPED]
        for keys, clips in cases:
            for width, height, frames in clips:
                seed += 1
                data = picture(seed, frames * width * height * 3).reshape(frames, height, width, 3)
                keys = {**always, "cap_pixels_per_frame": False, **keys}
                clip = torch.from_numpy(data).permute(0, 3, 1, 2)
                made = kind(**json.loads(json.dumps(keys)))([clip], do_sample_frames=False, return_tensors="np")["pixel_values_videos"]
                made = np.ascontiguousarray(made, np.float32)
                lines.append("\t".join((json.dumps(config), json.dumps(keys), *map(str, (width, height, frames, seed, *made.shape)),
                                        fnv1a(made.view(np.uint32).reshape(-1)))))
    path = pathlib.Path(__file__).parent / "golden" / "clips.txt"
    path.write_text("\n".join(lines) + "\n")
    print(f"{len(lines)} lines, {path.stat().st_size} bytes: {path}")


main()
