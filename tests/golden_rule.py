"""Golden files: what transformers answers, for weights and pictures that a rule makes.

A golden file is text lines, a line `end`, and then the data of the `output` lines, in their order, as little-endian
float32. Weights and pictures are not stored: Python and C make them from names by the rule
below (C: tests/golden.h), so that a file holds little more than what the model must answer.

    about TEXT                                         how the file came to be
    config JSON, preprocessor JSON                     config.json, preprocessor_config.json of the model; none: no such file
    weight NAME DTYPE BITS SCALE OFFSET DIM...         a tensor of the model: float(OFFSET + SCALE * rule(NAME, i, BITS))
    directory NAME                                     instead of weights: a directory saved by save_pretrained, beside the file
    picture WIDTH HEIGHT FRAMES                        8-bit RGB; byte i of picture k is the top byte of rule_bits("picture k", i)
    limits MIN MAX                                     min_pixels and max_pixels to encode with, if not the model's own
    output PICTURE KIND INDEX ROWS COLUMNS             KIND: pooled, tokens, layer, deepstack, embeds
    pixels PICTURE ROWS COLUMNS HASH                   pixel values: FNV-1a over the little-endian float32 words, [ROWS, COLUMNS]
"""
import json
import math

import numpy as np
import torch

DTYPES = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16"}
# Stored values are exact in every dtype when they have few bits, so that no rounding rule is part of this one.
BITS = {torch.float32: 24, torch.float16: 7, torch.bfloat16: 7}


def fnv1a(values):
    result = 0xCBF29CE484222325
    for value in values:
        result = (result ^ value) * 0x100000001B3 % 2**64
    return result


def rule_bits(name, count):
    """64 random bits for each i < count: splitmix64, started by the FNV-1a hash of the name."""
    seed = fnv1a(name.encode())
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + (np.arange(count, dtype=np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def rule(name, count, bits):
    """Numbers in [-1, 1) with `bits` bits."""
    return (rule_bits(name, count) >> np.uint64(64 - bits)).astype(np.float64) / 2.0 ** (bits - 1) - 1.0


def scale_and_offset(name, shape):
    """Weights far from a fresh model's: every bias and norm matters, softmax is sharp, GELU sees both of its tails."""
    if "position_embedding" in name or "pos_embed" in name or name.endswith("probe"):
        return 1.0, 0.0
    if len(shape) == 1:
        return (0.5, 1.0) if name.endswith(("weight", "lambda1")) else (0.25, 0.0)
    return 2.0 ** round(math.log2(2.0 / math.sqrt(max(1, math.prod(shape[1:]))))), 0.0


def fill_tensor(name, parameter, dtype):
    """Gives a tensor its values by the rule and returns its `weight` line. Values are exact in dtype."""
    scale, offset = scale_and_offset(name, parameter.shape)
    bits = BITS[dtype]
    values = (offset + scale * rule(name, parameter.numel(), bits)).astype(np.float32)
    tensor = torch.from_numpy(values).reshape(parameter.shape)
    assert torch.equal(tensor.to(dtype).float(), tensor)
    parameter.copy_(tensor)
    dims = " ".join(str(d) for d in parameter.shape)
    return f"weight {name} {DTYPES[dtype]} {bits} {scale!r} {offset!r} {dims}"


def fill(model, dtype):
    """Gives the model its weights by the rule and returns the `weight` lines."""
    return [fill_tensor(name, parameter, dtype) for name, parameter in model.state_dict().items()]


def picture(k, width, height, frames=1):
    """[frames, height, width, 3] uint8"""
    data = (rule_bits(f"picture {k}", frames * height * width * 3) >> np.uint64(56)).astype(np.uint8)
    return data.reshape(frames, height, width, 3)


def relative_l2(value, reference):
    value, reference = np.asarray(value, np.float64), np.asarray(reference, np.float64)
    return float(np.linalg.norm(value - reference) / np.linalg.norm(reference))


class Golden:
    def __init__(self, about):
        self.lines, self.blocks, self.errors = [f"about {about}"], [], []

    def line(self, text):
        assert "\n" not in text
        self.lines.append(text)

    def json(self, word, value):
        self.line(f"{word} {json.dumps(value, sort_keys=True)}")

    def output(self, picture_number, kind, index, value, exact):
        """value: of transformers in fp32; exact: the same in fp64, to know how far off transformers itself is."""
        value = np.ascontiguousarray(value.detach().numpy().reshape(-1, value.shape[-1]), "<f4")
        self.errors.append(relative_l2(value, exact.detach().numpy().reshape(value.shape)))
        self.line(f"output {picture_number} {kind} {index} {value.shape[0]} {value.shape[1]}")
        self.blocks.append(value)

    def pixels(self, picture_number, value):
        words = np.ascontiguousarray(value.numpy(), "<f4").view("<u4")
        self.line(f"pixels {picture_number} {words.shape[0]} {words.shape[1]} {fnv1a(words.reshape(-1).tolist())}")

    def write(self, path):
        if self.errors:
            self.line(f"about transformers' own fp32 error against fp64: at most {max(self.errors):.1e}")
        data = ("\n".join(self.lines) + "\nend\n").encode() + b"".join(b.tobytes() for b in self.blocks)
        path.write_bytes(data)
        print(f"{path.name}: {len(data)} bytes, fp32 error of transformers {max(self.errors, default=0):.1e}")
