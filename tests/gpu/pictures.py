#!/usr/bin/env python3
"""A picture and 32 ids in transformers, on the card, beside those of test_prompt picture: KL of the logits to fp32's, ours and bf16's, and
the time from patches on the card to the first logits on the host, eager and compiled.

    pictures.py make DIRECTORY qwen3-vl-2b [LAYERS]   a model of random weights, as tests/check_full_decoder.py makes it
    pictures.py check DIRECTORY LOGITS [SIDE,...]     KL alone; LOGITS: of test_prompt picture
    pictures.py time DIRECTORY LOGITS [SIDE,...]      and times
"""
import pathlib
import sys
import time

import numpy
import torch
import transformers
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
SIDES = (256, 512, 1024)
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def processor():
    return Qwen2VLImageProcessorPil(patch_size=16, size={"shortest_edge": 65536, "longest_edge": 16777216}, image_mean=[0.5] * 3,
                                    image_std=[0.5] * 3)


def make(directory, name, layers):
    import check_full_decoder

    folder = pathlib.Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    with torch.device(DEVICE): # billions of random weights take minutes on a CPU
        check_full_decoder.make(name, layers, folder)
    processor().save_pretrained(folder)


def inputs(side, config):
    index = numpy.arange(side * side * 3, dtype=numpy.uint64)
    pixels = (index * 2654435761 % 2**32 >> 24).astype(numpy.uint8).reshape(side, side, 3)
    given = dict(processor()([pixels], return_tensors="pt"))
    ids = [config.image_token_id] * int(given["image_grid_thw"].prod() // 4)
    ids += [i * 2654435761 % 2**32 % config.text_config.vocab_size for i in range(32)]
    given["input_ids"] = torch.tensor([ids])
    given["mm_token_type_ids"] = (given["input_ids"] == config.image_token_id).int()
    given["attention_mask"] = torch.ones_like(given["input_ids"])
    return {k: v.to(DEVICE) for k, v in given.items()}


def load(directory, dtype):
    model = transformers.Qwen3VLForConditionalGeneration.from_pretrained(directory, dtype=dtype, attn_implementation="sdpa")
    return model.to(DEVICE).eval()


def run(forward, given, dtype):
    given = {k: v.to(dtype) if v.is_floating_point() else v for k, v in given.items()}
    return forward(**given, logits_to_keep=1, use_cache=True).logits[0, -1]


def divergence(a, b):
    return torch.nn.functional.kl_div(a.log_softmax(0), b.log_softmax(0), log_target=True, reduction="sum").item()


def median_ms(call, rounds=9):
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        call()
        times.append((time.perf_counter() - began) * 1e3)
    return sorted(times)[rounds // 2]


def check(directory, path, sides):
    """Returns the model in bf16 and what it was given."""
    torch.set_float32_matmul_precision("highest")
    model = load(directory, torch.float32)
    given = {side: inputs(side, model.config) for side in sides}
    exact = {side: run(model, given[side], torch.float32).double() for side in sides}
    vocabulary = model.config.text_config.vocab_size
    del model
    model = load(directory, torch.bfloat16)
    ours = torch.from_numpy(numpy.fromfile(path, "<f4")).to(DEVICE).double().reshape(-1, vocabulary)
    for at, side in enumerate(SIDES):
        if side not in sides or at >= len(ours):
            continue
        mine, theirs = divergence(ours[at], exact[side]), divergence(run(model, given[side], torch.bfloat16).double(), exact[side])
        print(f"{'ok' if mine <= theirs else 'not ok'} picture of {side} x {side}: KL to fp32 {mine:.2e}, transformers' bf16 {theirs:.2e}; "
              f"largest {int(ours[at].argmax())}, fp32 {int(exact[side].argmax())}", flush=True)
    return model, given


def timing(model, given, sides):
    for side in sides:
        eager = median_ms(lambda: run(model, given[side], torch.bfloat16).cpu())
        print(f"transformers bf16, picture of {side} x {side} and 32 ids: {eager:.3f} ms eager", flush=True)
    for side in reversed(sides):
        try:
            torch._dynamo.reset()
            compiled = torch.compile(model)
            for _ in range(3):
                run(compiled, given[side], torch.bfloat16).cpu()
            ms = median_ms(lambda: run(compiled, given[side], torch.bfloat16).cpu())
            print(f"transformers bf16, picture of {side} x {side} and 32 ids: {ms:.3f} ms compiled", flush=True)
        except Exception as error:
            print(f"transformers, picture of {side} x {side}, compiled: failed {error!r}"[:300], flush=True)


def main():
    torch.set_grad_enabled(False)
    if sys.argv[1] == "make":
        make(sys.argv[2], sys.argv[3], int(sys.argv[4]) if len(sys.argv) > 4 else 0)
    else:
        sides = [int(side) for side in sys.argv[4].split(",")] if len(sys.argv) > 4 else list(SIDES)
        model, given = check(sys.argv[2], sys.argv[3], sides)
        if sys.argv[1] == "time":
            timing(model, given, sides)


main()
