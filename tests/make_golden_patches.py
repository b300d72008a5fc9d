#!/usr/bin/env python3
"""Writes tests/golden/text/patches.golden: rows of single patches, as transformers' modules make them where attention sees one row alone.

    tests/make_golden_patches.py            needs torch, transformers and the folders of make_golden_text.py

A line a model: the folder, rows, then the rows that mgv_patch_embeds takes and those that it gives, float32 in hexadecimal, little-endian.
"""
import pathlib
import struct
import sys

import torch
import transformers

FOLDER = pathlib.Path(__file__).resolve().parent / "golden/text"
ROWS = 5


def siglip(model, rows):
    return model.vision_model.head(rows[:, None])  # each row is a picture of one token


def clip(model, rows):
    alone = torch.full((1, 1, ROWS, ROWS), float("-inf")).masked_fill(torch.eye(ROWS, dtype=torch.bool), 0.0)
    out = model.vision_model.encoder.layers[-1](rows[None], attention_mask=alone)
    out = out[0] if isinstance(out, tuple) else out
    return model.visual_projection(model.vision_model.post_layernorm(out))


def main():
    lines = []
    generator = torch.Generator().manual_seed(7)
    for name, of in (("siglip", siglip), ("siglip_half", siglip), ("clip", clip), ("clip_legacy", clip)):
        model = transformers.AutoModel.from_pretrained(FOLDER / name, dtype=torch.float32, attn_implementation="eager").eval()
        rows = torch.randn(ROWS, model.config.vision_config.hidden_size, generator=generator)
        with torch.no_grad():
            answer = of(model, rows)
        lines.append(" ".join([name, str(ROWS), *(struct.pack(f"<{t.numel()}f", *t.flatten().tolist()).hex() for t in (rows, answer))]))
    (FOLDER / "patches.golden").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"transformers {transformers.__version__}, torch {torch.__version__}: {len(lines)} models", file=sys.stderr)


if __name__ == "__main__":
    main()
