#!/usr/bin/env python3
"""Prompts in transformers, on the card, beside those of test_prompt: KL of the logits to fp32's, ours and bf16's, and how long a prompt takes.

    prompts.py MODEL LOGITS [COUNT,COUNT...]    LOGITS: of test_prompt logits
"""
import sys
import time

import numpy
import torch
import transformers

LENGTHS = (5, 50, 100, 200, 500, 1000, 8000, 32767)


def ids_of(count, vocabulary):
    return torch.tensor([[i * 2654435761 % 2**32 % vocabulary for i in range(count)]], device="cuda")


def load(directory, dtype):
    return transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=dtype, attn_implementation="sdpa").cuda().eval()


@torch.inference_mode()
def logits(model):
    """In pieces, as all scores of a long prompt in fp32 are more than a card holds."""
    vocabulary, all_logits = model.config.vocab_size, []
    for n in LENGTHS:
        cache = transformers.DynamicCache()
        for piece in ids_of(n, vocabulary).split(1024, dim=1):
            last = model(piece, past_key_values=cache, use_cache=True, logits_to_keep=1).logits[0, -1]
        all_logits.append(last.double())
    return all_logits


def divergence(a, b):
    return torch.nn.functional.kl_div(a.log_softmax(0), b.log_softmax(0), log_target=True, reduction="sum").item()


def median_ms(call, rounds=11):
    times = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        began = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - began) * 1e3)
    return sorted(times)[rounds // 2]


@torch.inference_mode()
def timing(model, counts):
    for count in counts:
        ids = ids_of(count, model.config.vocab_size)

        def run():
            return model(ids, logits_to_keep=1, use_cache=True).logits

        eager = median_ms(lambda: run().cpu())
        graph = torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            run()
        stream.synchronize()
        with torch.cuda.graph(graph):
            out = run()

        def replay():
            graph.replay()
            return out.cpu()

        print(f"transformers bf16, prompt of {count} ids: {eager:.3f} ms eager, {median_ms(replay):.3f} ms in a CUDA graph", flush=True)
        del graph, out


def main():
    directory, path = sys.argv[1:3]
    counts = [int(n) for n in sys.argv[3].split(",")] if len(sys.argv) > 3 else [128, 512, 1000]
    torch.set_float32_matmul_precision("highest")
    model = load(directory, torch.float32)
    exact = logits(model)
    del model
    model = load(directory, torch.bfloat16)
    theirs = logits(model)
    ours = torch.from_numpy(numpy.fromfile(path, "<f4")).cuda().double().reshape(len(LENGTHS), -1)
    for n, a, b, c in zip(LENGTHS, ours, theirs, exact):
        mine, other = divergence(a, c), divergence(b, c)
        print(f"{'ok ' if mine <= other else 'not ok '}{n} ids: KL to fp32 {mine:.2e}, transformers' bf16 {other:.2e}; largest "
              f"{int(a.argmax())}, {int(b.argmax())}, fp32 {int(c.argmax())}", flush=True)
    timing(model, counts)


main()
