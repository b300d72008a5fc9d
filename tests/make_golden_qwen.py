"""Writes tests/golden/qwen*: small Qwen3-VL and Qwen2.5-VL vision towers and transformers' answers in fp32.

    python tests/make_golden_qwen.py        with torch 2.11, transformers 5.17, Pillow, numpy

Pixel values are those of the Pillow image processor. A clip's are put together from those of its frames.
"""
import copy
import json
import pathlib
import shutil

import numpy as np
import torch
from PIL import Image
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen3VLConfig, Qwen3VLForConditionalGeneration
from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLVisionConfig
from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VisionTransformerPretrainedModel
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLVisionConfig
from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLVisionModel

import golden_rule
from golden_rule import Golden

HERE = pathlib.Path(__file__).resolve().parent / "golden"
ABOUT = "made by tests/make_golden_qwen.py, transformers 5.17 in fp32, eager attention, one thread"


def qwen3(hidden, heads, intermediate, depth, deepstack, out, **more):
    return dict(model_type="qwen3_vl_vision", hidden_size=hidden, num_heads=heads, intermediate_size=intermediate, depth=depth,
                deepstack_visual_indexes=deepstack, out_hidden_size=out, **more)


def qwen2_5(hidden, heads, intermediate, depth, full, out, **more):
    return dict(model_type="qwen2_5_vl_vision", hidden_size=hidden, num_heads=heads, intermediate_size=intermediate, depth=depth,
                fullatt_block_indexes=full, out_hidden_size=out, **more)


# name, config, dtype of the stored weights, limits, clips (width, height, frames); the first clip's layers are recorded
CASES = [
    # 1 x 1 merged token; resized odd size; extreme aspect ratio
    ("qwen3_base", qwen3(128, 2, 208, 3, [0, 2], 96), torch.float32, None,
     [(32, 32, 1), (97, 161, 1), (32, 1024, 1), (96, 64, 1)]),
    ("qwen3_head_dim_72", qwen3(144, 2, 269, 2, [1], 80), torch.bfloat16, None, [(70, 40, 1)]),
    ("qwen3_head_dim_128", qwen3(256, 2, 136, 1, [0], 72), torch.bfloat16, None, [(96, 70, 1)]),
    ("qwen3_clip", qwen3(64, 1, 96, 2, [0], 48), torch.float32, None, [(64, 96, 4), (64, 32, 5)]),
    # A table smaller than the picture's grid, and limits that the caller sets
    ("qwen3_limits", qwen3(64, 2, 96, 1, [0], 48, num_position_embeddings=36), torch.float32, (4096, 16384), [(31, 40, 1), (300, 200, 1)]),
    # Windows: 5 x 3 merged units with odd tails; 1 x 1; 8 x 8, exactly divisible; extreme aspect ratio; resized
    ("qwen2_5_base", qwen2_5(160, 2, 171, 3, [1], 64), torch.float32, None,
     [(84, 140, 1), (28, 28, 1), (224, 224, 1), (560, 28, 1), (150, 201, 1)]),
    ("qwen2_5_float16", qwen2_5(80, 1, 100, 2, [1], 56), torch.float16, None, [(140, 84, 1)]),
    ("qwen2_5_head_dim_112", qwen2_5(224, 2, 92, 2, [1], 56), torch.bfloat16, None, [(56, 140, 1)]),
    ("qwen2_5_clip", qwen2_5(80, 1, 96, 2, [0], 56), torch.float32, None, [(84, 140, 4), (28, 56, 3)]),
]


def build(config):
    if config["model_type"] == "qwen3_vl_vision":
        return Qwen3VLVisionModel(Qwen3VLVisionConfig(**config, attn_implementation="eager")).float().eval()
    return Qwen2_5_VisionTransformerPretrainedModel(Qwen2_5_VLVisionConfig(**config, attn_implementation="eager")).float().eval()


def processor_for(config):
    factor = 2 * config.patch_size
    more = dict(image_mean=[0.5] * 3, image_std=[0.5] * 3) if config.model_type == "qwen3_vl_vision" else {}
    size = {"shortest_edge": factor * factor, "longest_edge": 64 * factor * factor}
    return Qwen2VLImageProcessorPil(patch_size=config.patch_size, size=size, **more)


def pixel_rows(processor, frames, limits):
    """Rows of patches and (t, h, w). A processor repeats a still picture; a clip's patches hold two frames each."""
    keys = dict(zip(("min_pixels", "max_pixels"), limits)) if limits else {}
    answers = [processor(Image.fromarray(frame), return_tensors="pt", **keys) for frame in frames]
    grid = answers[0]["image_grid_thw"].clone()
    rows = [answer["pixel_values"] for answer in answers]
    if len(rows) == 1:
        return rows[0], grid
    rows += rows[-1:] * (len(rows) % 2)
    patch = processor.patch_size
    halves = [row.reshape(len(row), 3, 2, patch, patch)[:, :, 0] for row in rows]
    pairs = [torch.stack(halves[i : i + 2], dim=2).reshape(len(rows[0]), -1) for i in range(0, len(halves), 2)]
    grid[0, 0] = len(pairs)
    return torch.cat(pairs), grid


def record(golden, model, processor, limits, clips):
    exact_model = copy.deepcopy(model).double()
    if limits:
        golden.line(f"limits {limits[0]} {limits[1]}")
    rows, grids, merged = [], [], []
    for k, (width, height, frames) in enumerate(clips):
        golden.line(f"picture {width} {height} {frames}")
        pixels, grid = pixel_rows(processor, golden_rule.picture(k, width, height, frames), limits)
        golden.pixels(k, pixels)
        answer = model(pixels, grid_thw=grid, output_hidden_states=True)
        exact = exact_model(pixels.double(), grid_thw=grid, output_hidden_states=True)
        golden.output(k, "tokens", 0, answer.pooler_output, exact.pooler_output)
        for j, (value, value_exact) in enumerate(zip(getattr(answer, "deepstack_features", ()), getattr(exact, "deepstack_features", ()))):
            golden.output(k, "deepstack", j, value, value_exact)
        if k == 0:
            assert len(answer.hidden_states) == model.config.depth + 1
            for n, (value, value_exact) in enumerate(zip(answer.hidden_states, exact.hidden_states)):
                golden.output(k, "layer", n, value, value_exact)
        rows.append(pixels)
        grids.append(grid)
        merged.append(answer.pooler_output)
    together = model(torch.cat(rows), grid_thw=torch.cat(grids)).pooler_output
    assert golden_rule.relative_l2(together, torch.cat(merged)) < 1e-5, "transformers mixes pictures of one call"


def make_rule_case(name, config, dtype, limits, clips):
    golden = Golden(ABOUT)
    model = build(config)
    processor = processor_for(model.config)
    golden.json("config", config)
    golden.json("preprocessor", json.loads(processor.to_json_string()))
    for line in golden_rule.fill(model, dtype):
        golden.line(line)
    record(golden, model, processor, limits, clips)
    golden.write(HERE / f"{name}.golden")


def make_directory_case(name, whole, shard_size):
    """A whole vision-language model as transformers saves it, its text model as small as can be."""
    golden = Golden(ABOUT)
    golden.line(f"directory {name}")
    whole = whole.float().eval()
    golden_rule.fill(whole, torch.bfloat16)
    vision = whole.model.visual
    processor = processor_for(vision.config)
    record(golden, vision, processor, None, [(97, 70, 1), (2 * vision.config.patch_size, 90, 1)])
    shutil.rmtree(HERE / name, ignore_errors=True)
    whole.to(torch.bfloat16).save_pretrained(HERE / name, max_shard_size=shard_size)
    processor.save_pretrained(HERE / name)
    (HERE / name / "generation_config.json").unlink(missing_ok=True)
    golden.write(HERE / f"{name}.golden")


def main():
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    HERE.mkdir(exist_ok=True)
    for case in CASES:
        make_rule_case(*case)

    text = dict(hidden_size=32, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1, head_dim=16,
                vocab_size=24)
    ids = dict(image_token_id=10, video_token_id=11, vision_start_token_id=12, vision_end_token_id=13)
    vision = qwen3(32, 2, 40, 3, [0, 1], 32, num_position_embeddings=144)
    config = Qwen3VLConfig(text_config=text, vision_config=vision, **ids, attn_implementation="eager")
    make_directory_case("qwen3_saved", Qwen3VLForConditionalGeneration(config), "100KB")
    vision = qwen2_5(32, 2, 40, 3, [2], 32)
    config = Qwen2_5_VLConfig(text_config=text, vision_config=vision, **ids, attn_implementation="eager")
    make_directory_case("qwen2_5_saved", Qwen2_5_VLForConditionalGeneration(config), "50GB")


if __name__ == "__main__":
    main()
