"""Trains the default model: a small SigLIP vision tower that knows shapes, colours, patterns and counts.

    python tools/make_default_model.py --out examples/model --seconds 305 --compile    trains on one GPU, exports, evaluates
    python tools/make_default_model.py --out examples/model --evaluate                 evaluates it again (no GPU needed)

Every training picture is rendered on the device and seen once: 1 to 4 equal shapes of one colour and one pattern, anywhere,
tilted, squashed, on a background of another colour, blurred, noisy, some enlarged from fewer pixels. One triple (colour,
shape, pattern) in ten is never rendered; those are the held-out combinations of the evaluation.

The loss is SigLIP's: pictures against labels. A label's embedding is the sum of learned vectors, one for a colour, one for
a shape, so that "red" and "circle" are directions that all red things and all circles share; pattern and count have
vectors of their own. Pooled embeddings can therefore be compared with each other and with labels by their cosine.

What is exported is an ordinary SigLIP directory (config.json, preprocessor_config.json, model.safetensors in BF16) and
labels.safetensors: `embeddings` [labels, D] of norm 1, and in the metadata `names` (a JSON list), `scale` and `bias`;
sigmoid(scale * cosine + bias) is the probability that the label fits.
"""
import argparse
import json
import math
import multiprocessing
import pathlib
import time

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import SiglipVisionConfig, SiglipVisionModel
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
from transformers.models.siglip.modeling_siglip import SiglipEncoderLayer

import draw_pictures
from render_pictures import HELD_OUT, MAX_COUNT, SEEN, SIDE, Renderer
from shapes import COLOUR_NAMES, COUNTS, PATTERNS, SHAPES

CONFIG = dict(hidden_size=192, num_attention_heads=3, intermediate_size=768, num_hidden_layers=5, patch_size=16, image_size=SIDE)


# ---- labels and loss ----

class Labels(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        table = lambda n: torch.nn.Parameter(torch.randn(n, width) * 0.5)
        self.colour, self.shape, self.pattern, self.count = (table(len(v)) for v in (COLOUR_NAMES, SHAPES, PATTERNS, COUNTS))
        self.log_scale = torch.nn.Parameter(torch.full((5,), math.log(10.0)))
        self.bias = torch.nn.Parameter(torch.tensor(-10.0))

    def pairs(self):
        """[colours * shapes, width] of norm 1: label i is colour i // shapes and shape i % shapes."""
        return F.normalize((F.normalize(self.colour, dim=-1)[:, None] + F.normalize(self.shape, dim=-1)[None]).flatten(0, 1), dim=-1)

    def loss(self, pooled, colour, shape, pattern, count):
        z, scale = F.normalize(pooled.float(), dim=-1), self.log_scale.exp()
        tables = (self.colour, colour), (self.shape, shape), (self.pattern, pattern), (self.count, count)
        total = sum(F.cross_entropy(scale[i] * z @ F.normalize(t, dim=-1).T, target) for i, (t, target) in enumerate(tables))
        cosine = z @ self.pairs().T
        pair = colour * len(SHAPES) + shape
        sign = 2.0 * F.one_hot(pair, cosine.shape[1]) - 1
        siglip = -F.logsigmoid(sign * (scale[4] * cosine + self.bias)).sum(-1).mean()
        return total + siglip, siglip


# ---- training ----

def train(args, device):
    torch.manual_seed(args.seed)
    renderer = Renderer(device)
    model = SiglipVisionModel(SiglipVisionConfig(**CONFIG)).to(device).train()
    if args.compile:
        renderer.compile()
        for module in model.modules():
            if isinstance(module, SiglipEncoderLayer):
                module.compile()
    labels = Labels(CONFIG["hidden_size"]).to(device)
    parameters = [*model.named_parameters(), *labels.named_parameters()]
    groups = [dict(params=[p for _, p in parameters if p.ndim >= 2], weight_decay=0.05),
              dict(params=[p for _, p in parameters if p.ndim < 2], weight_decay=0.0)]
    optimizer = torch.optim.AdamW(groups, lr=args.rate, betas=(0.9, 0.98), fused=device.type == "cuda")
    triples = torch.tensor(SEEN, device=device)
    steps, warm, start = args.steps, max(1, min(500, args.steps // 10)), time.time()
    for step in range(args.steps):
        if step == 100 and args.seconds:
            torch.cuda.synchronize() if device.type == "cuda" else None
            steps = min(steps, 100 + int((args.seconds - (time.time() - start)) / ((time.time() - measured) / 50)))
            print(f"{steps} steps fit into {args.seconds} s", flush=True)
        if step == 50:
            torch.cuda.synchronize() if device.type == "cuda" else None
            measured = time.time()
        if step >= steps:
            break
        for group in optimizer.param_groups:
            group["lr"] = args.rate * min((step + 1) / warm, 0.5 + 0.5 * math.cos(math.pi * step / steps))
        chosen = triples[torch.randint(len(triples), (args.batch,), device=device)].T
        count = torch.randint(MAX_COUNT, (args.batch,), device=device)
        pictures = renderer(*chosen, count)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            pooled = model(pixel_values=pictures).pooler_output
        loss, siglip = labels.loss(pooled, *chosen, count)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_([p for _, p in parameters], 1.0)
        optimizer.step()
        if step % args.report == 0 or step == steps - 1:
            print(f"step {step} loss {loss.item():.3f} siglip {siglip.item():.3f} {time.time() - start:.0f} s", flush=True)
            export(args.out, model, labels, args, step + 1)


def export(folder, model, labels, args, steps):
    folder.mkdir(parents=True, exist_ok=True)
    stored = SiglipVisionModel(SiglipVisionConfig(**CONFIG)).bfloat16()
    stored.load_state_dict(model.state_dict())
    stored.save_pretrained(folder)
    SiglipImageProcessorPil(size={"height": SIDE, "width": SIDE}, resample=2).save_pretrained(folder)
    names = [f"{c} {s}" for c in COLOUR_NAMES for s in SHAPES]
    scale, bias = labels.log_scale[4].exp().item(), labels.bias.item()
    metadata = dict(names=json.dumps(names), scale=f"{scale:.4f}", bias=f"{bias:.4f}",
                    training=f"seed {args.seed}, {steps} steps of {args.batch} pictures")
    save_file({"embeddings": labels.pairs().detach().float().cpu().contiguous()}, folder / "labels.safetensors", metadata)


# ---- evaluation ----

@torch.no_grad()
def embed(model, pictures):
    return torch.cat([F.normalize(model(pixel_values=chunk).pooler_output, dim=-1) for chunk in pictures.split(64)])


def draw_one(task):
    seed, colour, shape, pattern, count = task
    size = [(160, 160), (220, 140), (140, 200), (320, 240), (96, 96)][seed % 5]
    return np.asarray(draw_pictures.draw(seed, SHAPES[shape], COLOUR_NAMES[colour], PATTERNS[pattern], count + 1, size))


def drawn(tasks):
    processor = SiglipImageProcessorPil(size={"height": SIDE, "width": SIDE}, resample=2)
    with multiprocessing.Pool() as pool:
        return torch.cat([processor(array, return_tensors="pt")["pixel_values"] for array in pool.map(draw_one, tasks, chunksize=8)])


def report(title, z, truth, pairs):
    """truth: [n, 4] colour, shape, pattern, count"""
    near = z @ z.T
    near.fill_diagonal_(-2)
    hit = truth == truth[near.argmax(1)]
    label = (z @ pairs.T).argmax(1)
    right = torch.stack([label // len(SHAPES) == truth[:, 0], label % len(SHAPES) == truth[:, 1]], 1)
    figures = [right.all(1), hit[:, 0], hit[:, 1], hit[:, :2].all(1), hit[:, 2], hit[:, 3]]
    print(f"| {title} | {len(z)} | " + " | ".join(f"{100 * f.float().mean():.1f}" for f in figures) + " |")


def evaluate(folder, pictures_per_set):
    model = SiglipVisionModel.from_pretrained(folder, dtype=torch.float32).eval()
    with safe_open(folder / "labels.safetensors", "pt") as file:
        pairs = file.get_tensor("embeddings")
    renderer = Renderer(torch.device("cpu"))
    torch.manual_seed(987654321)
    print("| pictures | number | label | nearest: colour | shape | both | pattern | count |")
    print("|---|---|---|---|---|---|---|---|")
    for title, triples in (("combinations seen in training", SEEN), ("held-out combinations", HELD_OUT)):
        chosen = torch.tensor(triples)[torch.randint(len(triples), (pictures_per_set,))]
        truth = torch.cat([chosen, torch.randint(MAX_COUNT, (pictures_per_set, 1))], 1)
        rendered = torch.cat([renderer(*part.T) for part in truth.split(128)])
        report(f"rendered like the training pictures, {title}", embed(model, rendered), truth, pairs)
        pillow = drawn([(i, *row.tolist()) for i, row in enumerate(truth)])
        report(f"drawn by tools/draw_pictures.py, {title}", embed(model, pillow), truth, pairs)
        flat = F.normalize(pillow.flatten(1) - pillow.flatten(1).mean(1, keepdim=True), dim=-1)
        near = flat @ flat.T
        near.fill_diagonal_(-2)
        hit = (truth == truth[near.argmax(1)]).float()
        both = (truth == truth[near.argmax(1)])[:, :2].all(1).float()
        print(f"| the same, comparing raw pixels instead | {len(flat)} | | " + " | ".join(
            f"{100 * f.mean():.1f}" for f in (hit[:, 0], hit[:, 1], both, hit[:, 2], hit[:, 3])) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--evaluate", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=20000)
    parser.add_argument("--seconds", type=float, default=0, help="make fewer steps if all do not fit into this time")
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--report", type=int, default=500, help="steps from a printed line and an export to the next")
    parser.add_argument("--compile", action="store_true", help="torch.compile: half a minute of waiting, then faster steps")
    parser.add_argument("--pictures", type=int, default=1000, help="pictures in each set of the evaluation")
    args = parser.parse_args()
    if not args.evaluate:
        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        train(args, device)
    evaluate(args.out, args.pictures)


if __name__ == "__main__":
    main()
