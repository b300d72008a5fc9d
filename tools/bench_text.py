"""Sets build/bench_text beside PyTorch on the same cores, in turns: short texts through a text tower of SigLIP2-base's size (12 layers of
768, 256,000 tokens, 64 wide), random weights in float32.

    taskset -c 0,1 python tools/bench_text.py --binary build/bench_text --work DIR [--texts 250] [--rounds 4] [--batch 50]

Processor time is that of all threads; it hardly minds what else the machine does. Needs torch alone.
"""
import argparse
import json
import pathlib
import struct
import subprocess
import time

import torch

from make_default_text import TextTower

WIDTH, LENGTH, VOCABULARY = 768, 64, 256000
CONFIG = dict(hidden_size=WIDTH, num_attention_heads=12, intermediate_size=3072, num_hidden_layers=12, vocab_size=VOCABULARY,
              max_position_embeddings=LENGTH, projection_size=WIDTH)


def write_model(folder, tower):
    """config.json and model.safetensors, without the library of that name."""
    folder.mkdir(parents=True, exist_ok=True)
    text = dict(CONFIG, model_type="siglip_text_model", hidden_act="gelu_pytorch_tanh", layer_norm_eps=1e-6)
    (folder / "config.json").write_text(json.dumps(text))
    header, at, tensors = {}, 0, {f"text_model.{k}": v.contiguous() for k, v in tower.state_dict().items()}
    for name, tensor in tensors.items():
        header[name] = dict(dtype="F32", shape=list(tensor.shape), data_offsets=[at, at + 4 * tensor.numel()])
        at += 4 * tensor.numel()
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        for tensor in tensors.values():
            file.write(tensor.numpy().tobytes())


def make_ids(texts):
    """The rule of tools/bench_text.c."""
    state, rows = 1, []
    for _ in range(texts):
        state = (state * 1664525 + 1013904223) % 2**32
        words, row = 3 + (state >> 8) % 10, []
        for k in range(LENGTH):
            state = (state * 1664525 + 1013904223) % 2**32
            row.append(4 + (state >> 8) % (VOCABULARY - 4) if k < words else 0)
        rows.append(row)
    return torch.tensor(rows)


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="build/bench_text")
    parser.add_argument("--work", type=pathlib.Path, required=True)
    parser.add_argument("--texts", type=int, default=250, help="a round and side")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--batch", type=int, default=50, help="of PyTorch's calls")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", choices=["auto", "fast"], default="auto", help="fast: beside PyTorch in bfloat16")
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    tower = TextTower(CONFIG).eval()
    for name, p in tower.named_parameters():
        if "embedding" in name:
            p.mul_(0.1)
    write_model(args.work, tower)
    if args.precision == "fast":
        tower.bfloat16()
    ids, sums = make_ids(args.texts), [0.0] * 4
    tower(ids[:args.batch])
    print(f"torch {torch.__version__}, {args.threads} threads; seconds for {args.texts} texts")
    print("| round | megavit | processor | PyTorch | processor | difference of the last row |\n|---|---|---|---|---|---|")
    for number in range(args.rounds):
        ours = [float(x) for x in subprocess.run([args.binary, args.work, str(args.texts), str(args.threads), args.precision], check=True,
                                                 capture_output=True, text=True).stdout.split()]
        wall, processor = time.monotonic(), time.process_time()
        rows = torch.cat([tower(part) for part in ids.split(args.batch)])
        took = [ours[0], ours[1], time.monotonic() - wall, time.process_time() - processor]
        sums = [a + b for a, b in zip(sums, took)]
        off = (torch.tensor(ours[2:]) - rows[-1, :4].float()).norm() / rows[-1, :4].float().norm()
        print(f"| {number + 1} | " + " | ".join(f"{x:.2f}" for x in took) + f" | {off:.1e} |", flush=True)
    print(f"| all {args.texts * args.rounds} texts | " + " | ".join(f"{x:.2f}" for x in sums) + " | |")
    print(f"megavit takes {sums[0] / sums[2]:.2f} of PyTorch's time, {sums[1] / sums[3]:.2f} of its processor time")


if __name__ == "__main__":
    main()
