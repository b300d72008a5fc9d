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
import zlib

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import SiglipVisionConfig, SiglipVisionModel
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
from transformers.models.siglip.modeling_siglip import SiglipEncoderLayer

import draw_pictures
from draw_pictures import COLOUR_NAMES, COLOURS, COUNTS, PATTERNS, SHAPES

SIDE = 224
SMALLEST = 90  # pixels a side that pictures may have had before they were enlarged
CONFIG = dict(hidden_size=192, num_attention_heads=3, intermediate_size=768, num_hidden_layers=5, patch_size=16, image_size=SIDE)
MAX_COUNT = len(COUNTS)
VARIANTS = 4


def is_held_out(colour, shape, pattern):
    return zlib.crc32(f"{colour} {shape} {pattern}".encode()) % 10 == 0


TRIPLES = [(c, s, p) for c in range(len(COLOUR_NAMES)) for s in range(len(SHAPES)) for p in range(len(PATTERNS))]
SEEN = [t for t in TRIPLES if not is_held_out(COLOUR_NAMES[t[0]], SHAPES[t[1]], PATTERNS[t[2]])]
HELD_OUT = [t for t in TRIPLES if t not in set(SEEN)]


# ---- rendering: distance fields of the outlines, looked up by each pixel ----

FIELD_SIDE, FIELD_REACH = 160, 1.3


def distance_field(polygons):
    """Signed distance to the outline in units of the shape's radius, negative inside."""
    axis = np.linspace(-FIELD_REACH, FIELD_REACH, FIELD_SIDE)
    points = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 1, 2)
    nearest, inside = np.full(len(points), np.inf), np.zeros(len(points), bool)
    for polygon in polygons:
        a, b = polygon, np.roll(polygon, -1, axis=0)
        edge, to = b - a, points - a
        along = np.clip((to * edge).sum(-1) / np.maximum((edge * edge).sum(-1), 1e-12), 0, 1)
        nearest = np.minimum(nearest, np.linalg.norm(to - along[..., None] * edge, axis=-1).min(1))
        above = (a[:, 1] > points[..., 1]) != (b[:, 1] > points[..., 1])
        with np.errstate(divide="ignore", invalid="ignore"):
            crossing = a[:, 0] + (points[..., 1] - a[:, 1]) / (b[:, 1] - a[:, 1]) * edge[:, 0]
        inside ^= (np.where(above, points[..., 0] < crossing, False).sum(1) % 2).astype(bool)
    return np.where(inside, -nearest, nearest).reshape(FIELD_SIDE, FIELD_SIDE)


class Renderer:
    def __init__(self, device):
        fields = [distance_field(draw_pictures.outline(shape, v / (VARIANTS - 1))) for shape in SHAPES for v in range(VARIANTS)]
        self.fields = torch.tensor(np.stack(fields), dtype=torch.float32, device=device)[:, None]
        limits = torch.tensor([COLOURS[name] for name in COLOUR_NAMES], dtype=torch.float32, device=device)
        self.hsv_least, self.hsv_most = limits[..., 0], limits[..., 1]
        axis = torch.arange(SIDE, device=device, dtype=torch.float32) + 0.5
        self.y, self.x = torch.meshgrid(axis, axis, indexing="ij")
        self.device = device

    def uniform(self, *shape, least=0.0, most=1.0):
        return torch.rand(*shape, device=self.device) * (most - least) + least

    def one(self, b, least=0.0, most=1.0):
        return self.uniform(b, 1, 1, least=least, most=most)

    def main_colour(self, colour):
        hsv = self.hsv_least[colour] + torch.rand(len(colour), 3, device=self.device) * (self.hsv_most - self.hsv_least)[colour]
        k = (torch.tensor([5.0, 3.0, 1.0], device=self.device) + hsv[:, :1] % 360 / 60) % 6
        return hsv[:, 2:] * (1 - hsv[:, 1:2] * torch.minimum(k, 4 - k).clamp(0, 1))

    def second_colour(self, main, colour):
        """A grey, or a shade of the main colour, that the eye tells from it. On black and white a middling grey: white
        checks on black are black checks on white."""
        b = len(main)
        light = main @ torch.tensor([0.3, 0.59, 0.11], device=self.device)
        away = torch.where(light < 0.55, self.uniform(b, least=0.85), self.uniform(b, least=0.0, most=0.15))[:, None]
        second = away + (main - away) * self.uniform(b, 1, most=0.35) * (self.uniform(b, 1) < 0.4)
        is_grey = (colour >= COLOUR_NAMES.index("white"))[:, None]
        return torch.where(is_grey, self.uniform(b, 1, least=0.42, most=0.62), second)

    def places(self, count):
        """x, y, radius of MAX_COUNT shapes a picture that hardly touch: the first of 32 tries that is good enough."""
        b, tries = len(count), 32
        least = torch.where(count == 1, 0.18, 0.12)[:, None, None]
        most = torch.where(count == 1, 0.46, torch.where(count == 2, 0.25, 0.21))[:, None, None]
        radius = SIDE * (least + (most - least) * self.uniform(b, tries, MAX_COUNT))
        slack = 0.9 * radius
        x = slack + (SIDE - 2 * slack) * self.uniform(b, tries, MAX_COUNT)
        y = slack + (SIDE - 2 * slack) * self.uniform(b, tries, MAX_COUNT)
        apart = torch.hypot(x[..., :, None] - x[..., None, :], y[..., :, None] - y[..., None, :])
        gap = apart / (radius[..., :, None] + radius[..., None, :])
        number = torch.arange(MAX_COUNT, device=self.device)
        real = (number[:, None] < number[None, :]) & (number[None, None, :] < count[:, None, None])
        gap = torch.where(real[:, None], gap, torch.full_like(gap, 9.0)).flatten(2).amin(2).clamp(max=1.02)
        best = gap.argmax(1)[:, None, None].expand(-1, 1, MAX_COUNT)
        return [v.gather(1, best)[:, 0] for v in (x, y, radius)]

    def field(self, b, cells_y, cells_x, mode="bilinear"):
        return F.interpolate(self.uniform(b, 1, cells_y, cells_x, least=-1.0), (SIDE, SIDE), mode=mode)[:, 0]

    def background(self, main):
        """[b, 3, SIDE, SIDE]: a colour that stands out from the main one, with structure in its brightness or hue."""
        b = len(main)
        tries = self.uniform(b, 12, 1) + self.uniform(b, 12, 3, least=-0.25, most=0.25)
        tries = tries.clamp(0, 1)
        far = ((tries - main[:, None]).norm(dim=-1) > 0.45).float()
        base = tries[torch.arange(b, device=self.device), far.argmax(1)]
        angle = self.one(b, most=2 * math.pi)
        along = (torch.cos(angle) * (self.x - SIDE / 2) + torch.sin(angle) * (self.y - SIDE / 2)) / SIDE
        split = torch.tanh((along + self.one(b, -0.25, 0.25)) * self.one(b, 40, 200))
        step, thick = SIDE * self.one(b, 0.05, 0.17), SIDE * self.one(b, 0.005, 0.013)
        lines = ((self.x % step < thick) | (self.y % step < thick)).float()
        bars = self.field(b, 32, 1, "nearest")
        kinds = torch.stack([torch.zeros_like(split), along * 2, split, self.field(b, 4, 4), self.field(b, 12, 12), lines, bars,
                             bars.transpose(1, 2)], 1)
        kind = torch.randint(kinds.shape[1], (b,), device=self.device)
        texture = kinds[torch.arange(b, device=self.device), kind] * self.one(b, 0.03, 0.17)
        tint = 1 + self.uniform(b, 3, 1, 1, least=-0.4, most=0.4)
        return (base[..., None, None] + texture[:, None] * tint).clamp(0, 1)

    def pattern_mask(self, pattern, radius):
        """[b, SIDE, SIDE]: where the second colour shows."""
        b = len(pattern)
        step = (radius[:, None, None] * self.one(b, 0.32, 0.6)).clamp(min=0.036 * SIDE)
        angle = self.one(b, most=2 * math.pi)
        u = torch.cos(angle) * self.x + torch.sin(angle) * self.y + self.one(b, most=50.0)
        v = -torch.sin(angle) * self.x + torch.cos(angle) * self.y + self.one(b, most=50.0)
        edge = lambda inside: (inside + 0.5).clamp(0, 1)
        stripes = edge(self.one(b, 0.18, 0.26) * step - ((u / step) % 1 - 0.5).abs() * step)
        row = torch.floor(v / step)
        across = (u / step + 0.5 * (row % 2)) % 1 - 0.5
        dots = edge(self.one(b, 0.22, 0.32) * step - torch.hypot(across * step, ((v / step) % 1 - 0.5) * step))
        half = 0.72 * step
        checks = edge(torch.sin(math.pi * u / half) * torch.sin(math.pi * v / half) * half * 0.5)
        masks = torch.stack([torch.zeros_like(u), stripes, dots, checks], 1)
        return masks[torch.arange(b, device=self.device), pattern]

    def with_shape(self, picture, fill, fields, x, y, radius, angle, stretch, soft, is_there):
        """The pictures with one more shape in each where is_there. x ... is_there: [b, 1, 1]"""
        dx, dy = (self.x - x) / radius * stretch, (self.y - y) / radius / stretch
        at = torch.stack([torch.cos(angle) * dx + torch.sin(angle) * dy, -torch.sin(angle) * dx + torch.cos(angle) * dy], -1)
        distance = F.grid_sample(fields, at / FIELD_REACH, mode="bilinear", padding_mode="border", align_corners=True)
        cover = (0.5 - distance * (radius / soft)[:, None]).clamp(0, 1) * is_there[:, None]
        return picture * (1 - cover) + fill * cover

    def with_faults_of_a_camera(self, picture):
        """Blurred, of another contrast and brightness, noisy."""
        b = len(picture)
        blurred = F.avg_pool2d(F.pad(picture, (1, 1, 1, 1), mode="replicate"), 3, 1)
        picture = torch.lerp(picture, blurred, self.one(b)[:, None] * (self.one(b)[:, None] < 0.4))
        picture = (picture - 0.5) * self.one(b, 0.85, 1.1)[:, None] + 0.5 + self.one(b, -0.06, 0.06)[:, None]
        picture = picture + torch.randn_like(picture) * self.one(b, 0.0, 0.05)[:, None] * (self.one(b)[:, None] < 0.6)
        return picture.clamp(0, 1)

    def enlarged_from_fewer_pixels(self, pictures):
        """Three quarters of the pictures, each quarter from another number of pixels."""
        quarters = list(pictures.split((len(pictures) + 3) // 4))
        for i in range(1, len(quarters)):
            side = int(torch.randint(SMALLEST, SIDE + 1, ()))
            small = F.interpolate(quarters[i], (side, side), mode="bilinear", antialias=True)
            quarters[i] = F.interpolate(small, (SIDE, SIDE), mode="bilinear")
        return torch.cat(quarters)

    def compile(self):
        for name in ("background", "pattern_mask", "with_shape", "with_faults_of_a_camera"):
            setattr(self, name, torch.compile(getattr(self, name), dynamic=False))

    @torch.no_grad()
    def __call__(self, colour, shape, pattern, count):
        """Pictures [b, 3, SIDE, SIDE] as the model sees them, in [-1, 1]. All arguments [b] indices; count from 0."""
        b = len(colour)
        main = self.main_colour(colour)
        second = self.second_colour(main, colour)
        picture = self.background(main)
        x, y, radius = (v[..., None, None] for v in self.places(count + 1))
        fields = self.fields[shape * VARIANTS + torch.randint(VARIANTS, (b,), device=self.device)]
        tilt, stretch, soft = self.one(b, -0.52, 0.52), torch.exp(self.one(b, -0.24, 0.24)), self.one(b, 0.8, 1.8)
        mask = self.pattern_mask(pattern, radius[:, 0, 0, 0])[:, None]
        fill = torch.lerp(main[..., None, None], second[..., None, None], mask)
        shade = 1 + self.one(b, 0.0, 0.25)[:, None] * self.field(b, 2, 2)[:, None] * (self.one(b)[:, None] < 0.4)
        fill = (fill * shade).clamp(0, 1)
        for k in range(MAX_COUNT):
            angle = tilt + self.one(b, -0.15, 0.15)
            is_there = (k <= count)[:, None, None].float()
            place = [v[:, k].contiguous() for v in (x, y, radius)]
            picture = self.with_shape(picture, fill, fields, *place, angle, stretch, soft, is_there)
        picture = self.enlarged_from_fewer_pixels(self.with_faults_of_a_camera(picture))
        return (picture.clamp(0, 1) * 255).round() / 127.5 - 1


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
