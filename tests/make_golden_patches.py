#!/usr/bin/env python3
"""Writes tests/golden/text/patches.golden: rows of single patches, as transformers' modules make them where attention sees one row
alone, or all but one, and then all.

    tests/make_golden_patches.py            needs torch, transformers and the folders of make_golden_text.py

A line a model and view: the folder, "alone" or "left-out", how many rows, then those that mgv_patch_embeds takes and those that it gives,
float32 in hexadecimal, little-endian.
"""
import pathlib
import struct
import sys

import torch
import transformers

FOLDER = pathlib.Path(__file__).resolve().parent / "golden/text"
ROWS = 5


def siglip(model, rows, hidden):
    """hidden: [n, ROWS], what answer i's attention does not see."""
    head = model.vision_model.head
    rows = rows.expand(len(hidden), -1, -1)
    attended = head.attention(head.probe.expand(len(hidden), -1, -1), rows, rows, key_padding_mask=hidden)[0]
    return (attended + head.mlp(head.layernorm(attended)))[:, 0]


def clip(model, rows, hidden):
    """The class token, which is the first, without one row; or each row by itself."""
    n = len(hidden)
    mask = torch.zeros(n, 1, ROWS, ROWS).masked_fill(hidden[:, None, None], float("-inf"))
    out = model.vision_model.encoder.layers[-1](rows.expand(n, -1, -1), attention_mask=mask)
    out = out[0] if isinstance(out, tuple) else out
    picked = torch.arange(n) if hidden.sum() > ROWS else torch.zeros(n, dtype=torch.long)
    return model.visual_projection(model.vision_model.post_layernorm(out[torch.arange(n), picked]))


def main():
    lines = []
    generator = torch.Generator().manual_seed(7)
    # rows so large that one of them has most of the attention, too
    for name, of, scale in (("siglip", siglip, 12), ("siglip_half", siglip, 1), ("clip", clip, 1), ("clip_legacy", clip, 1)):
        model = transformers.AutoModel.from_pretrained(FOLDER / name, dtype=torch.float32, attn_implementation="eager").eval()
        rows = torch.randn(ROWS, model.config.vision_config.hidden_size, generator=generator) * scale
        views = ("alone", ~torch.eye(ROWS, dtype=torch.bool)), ("left-out", torch.eye(ROWS + 1, dtype=torch.bool)[:, :ROWS])
        for view, hidden in views:
            with torch.no_grad():
                answer = of(model, rows, hidden)
            numbers = (struct.pack(f"<{t.numel()}f", *t.flatten().tolist()).hex() for t in (rows, answer))
            lines.append(" ".join([name, view, str(ROWS), *numbers]))
    (FOLDER / "patches.golden").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"transformers {transformers.__version__}, torch {torch.__version__}: {len(lines)} lines", file=sys.stderr)


if __name__ == "__main__":
    main()
