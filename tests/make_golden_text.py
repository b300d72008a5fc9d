#!/usr/bin/env python3
"""Writes tests/golden/text: small text towers of random weights, saved by transformers, and the rows that it makes of ids in fp32.

    tests/make_golden_text.py               needs torch and transformers

A folder a model, with config.json and model.safetensors. cases.golden has a line a case: the folder, what is read (text, pooled, tokens, or
layer:N), ids with commas, and the float32 values in hexadecimal, little-endian.
"""
import pathlib
import shutil
import struct
import sys

import torch
import transformers

FOLDER = pathlib.Path(__file__).resolve().parent / "golden/text"
SMALL = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4)
VISION = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=16, patch_size=8)


def shake(model, seed):
    """Weights large enough that every part of the model shows in its rows."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters()):
            scale = 0.5 if parameter.ndim < 2 else 0.2
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale + (1.0 if name.endswith("norm.weight") else 0.0))
    return model.eval()


def models():
    text = dict(SMALL, vocab_size=61, max_position_embeddings=12)
    yield "siglip", transformers.SiglipModel(transformers.SiglipConfig(
        text_config=dict(text, projection_size=32), vision_config=VISION)), torch.float32
    yield "siglip_half", transformers.SiglipModel(transformers.SiglipConfig(text_config=text, vision_config=VISION)), torch.float16
    yield "siglip2_alone", transformers.Siglip2TextModel(transformers.Siglip2TextConfig(**text)), torch.float32
    yield "clip", transformers.CLIPModel(transformers.CLIPConfig(
        text_config=dict(text, eos_token_id=59), vision_config=VISION, projection_dim=40)), torch.float32
    yield "clip_legacy", transformers.CLIPModel(transformers.CLIPConfig(
        text_config=dict(text, eos_token_id=2), vision_config=VISION, projection_dim=40)), torch.bfloat16
    yield "clip_alone", transformers.CLIPTextModelWithProjection(transformers.CLIPTextConfig(
        **text, eos_token_id=59, projection_dim=24, hidden_act="gelu")), torch.float32
    yield "clip_plain", transformers.CLIPTextModel(transformers.CLIPTextConfig(**text, eos_token_id=59)), torch.float32


def rows(model, ids):
    """What is read, and its values."""
    ids = torch.tensor([ids])
    inner = getattr(model, "text_model", model)
    with torch.no_grad():
        out = inner(input_ids=ids, output_hidden_states=True)
        if hasattr(model, "get_text_features"):
            text = model.get_text_features(input_ids=ids)
            yield "text", getattr(text, "pooler_output", text)
        elif hasattr(model, "text_projection"):
            yield "text", model(input_ids=ids).text_embeds
        else:
            yield "text", out.pooler_output
        yield "pooled", out.pooler_output
        yield "tokens", out.last_hidden_state
        yield "layer:0", out.hidden_states[0]
        yield "layer:2", out.hidden_states[2]


def main():
    lines = []
    shutil.rmtree(FOLDER, ignore_errors=True)
    for seed, (name, model, dtype) in enumerate(models()):
        model = shake(model, seed).to(dtype)
        model.save_pretrained(FOLDER / name)
        (FOLDER / name / "generation_config.json").unlink(missing_ok=True)
        model = model.float()
        for ids in ([5, 17, 59, 3, 3, 0, 0, 0, 0, 0, 0, 0], [60, 59, 58, 57, 59, 1, 2], [7], [9, 8, 60, 60, 1], [40, 2, 30, 2]):
            for what, values in rows(model, ids):
                if what in ("tokens", "layer:0", "layer:2") and len(ids) > 7:
                    continue
                values = values.reshape(-1).tolist()
                lines.append(" ".join([name, what, ",".join(map(str, ids)), struct.pack(f"<{len(values)}f", *values).hex()]))
    (FOLDER / "cases.golden").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"transformers {transformers.__version__}, torch {torch.__version__}: {len(lines)} cases", file=sys.stderr)


if __name__ == "__main__":
    main()
