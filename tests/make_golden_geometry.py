"""Writes tests/golden/geometry.h: what transformers computes for the layout of a picture, for many grids.

    python3 tests/make_golden_geometry.py > tests/golden/geometry.h

The arrays are long, so each is written as its length and its FNV-1a hash over little-endian 4-byte entries; floats by
their bits. The arrays of a few small grids stand in tests/test_geometry.c in full.
"""
import numpy
import torch
import transformers
from transformers.vision_utils import (
    get_vision_cu_seqlens,
    get_vision_interpolation_indices_and_weights,
    get_vision_position_ids,
    get_vision_window_index,
)

MERGE, TABLE_SIDE, WINDOW, PATCH = 2, 48, 112, 14
GRIDS = [
    (1, 2, 2), (1, 2, 4), (1, 4, 2), (1, 2, 400), (1, 400, 2), (1, 6, 10), (1, 8, 8), (1, 10, 14), (1, 14, 22),
    (1, 16, 16), (1, 22, 24), (1, 28, 28), (1, 30, 40), (1, 34, 46), (1, 48, 48), (1, 50, 52), (1, 64, 64), (1, 94, 96),
    (1, 96, 98), (1, 130, 62), (2, 2, 2), (2, 16, 24), (3, 10, 14), (4, 8, 18), (5, 18, 6),
]


def fingerprint(values):
    entries = numpy.ascontiguousarray(values)
    value = 0xCBF29CE484222325
    for byte in entries.tobytes():
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{{ {entries.size}, 0x{value:016x}u }}"


def in_units(rows, order):
    return rows.reshape(len(order), MERGE * MERGE, -1)[order].reshape(rows.shape)


print(f"/* Made by tests/make_golden_geometry.py with transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}. */")
print("static const geometry_case geometry_cases[] = {")
for t, h, w in GRIDS:
    grid = torch.tensor([[t, h, w]])
    index, weight = get_vision_interpolation_indices_and_weights(
        grid, TABLE_SIDE, mode="bilinear", align_corners=True, spatial_merge_size=MERGE
    )
    position = get_vision_position_ids(grid, MERGE, include_temporal=True).numpy().astype(numpy.int32)
    order, window_ends = get_vision_window_index(grid, MERGE, WINDOW, PATCH)
    order = order.numpy().astype(numpy.uint32)
    print(f"    {{ {t}, {h}, {w},")
    print(f"      {fingerprint(index.numpy().astype(numpy.uint32))}, {fingerprint(weight.numpy().astype(numpy.float32))},")
    print(f"      {fingerprint(position)}, {fingerprint(in_units(position, order))},")
    print(f"      {fingerprint(get_vision_cu_seqlens(grid).numpy()[1:].astype(numpy.uint32))},")
    print(f"      {fingerprint(order)}, {fingerprint(window_ends.numpy()[1:].astype(numpy.uint32))} }},")
print("};")
