"""Training pictures of the default model, rendered on a GPU or a CPU from distance fields of the outlines in tools/shapes.py.

One triple (colour, shape, pattern) in ten is never rendered for training; those are the held-out combinations of the evaluations.
"""
import functools
import math
import zlib

import numpy as np
import torch
import torch.nn.functional as F

from shapes import COLOUR_NAMES, COLOURS, COUNTS, PATTERNS, SHAPES, outline

SIDE = 224
SMALLEST = 90  # pixels a side that pictures may have had before they were enlarged
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


@functools.lru_cache
def shape_fields():
    return np.stack([distance_field(outline(shape, v / (VARIANTS - 1))) for shape in SHAPES for v in range(VARIANTS)])


class Renderer:
    """Pictures of height x width."""

    def __init__(self, device, height=SIDE, width=SIDE):
        self.fields = torch.tensor(shape_fields(), dtype=torch.float32, device=device)[:, None]
        limits = torch.tensor([COLOURS[name] for name in COLOUR_NAMES], dtype=torch.float32, device=device)
        self.hsv_least, self.hsv_most = limits[..., 0], limits[..., 1]
        self.height, self.width, self.side = height, width, min(height, width)
        axes = [torch.arange(n, device=device, dtype=torch.float32) + 0.5 for n in (height, width)]
        self.y, self.x = torch.meshgrid(*axes, indexing="ij")
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
        radius = self.side * (least + (most - least) * self.uniform(b, tries, MAX_COUNT))
        slack = 0.9 * radius
        x = slack + (self.width - 2 * slack) * self.uniform(b, tries, MAX_COUNT)
        y = slack + (self.height - 2 * slack) * self.uniform(b, tries, MAX_COUNT)
        apart = torch.hypot(x[..., :, None] - x[..., None, :], y[..., :, None] - y[..., None, :])
        gap = apart / (radius[..., :, None] + radius[..., None, :])
        number = torch.arange(MAX_COUNT, device=self.device)
        real = (number[:, None] < number[None, :]) & (number[None, None, :] < count[:, None, None])
        gap = torch.where(real[:, None], gap, torch.full_like(gap, 9.0)).flatten(2).amin(2).clamp(max=1.02)
        best = gap.argmax(1)[:, None, None].expand(-1, 1, MAX_COUNT)
        return [v.gather(1, best)[:, 0] for v in (x, y, radius)]

    def field(self, b, cells_y, cells_x, mode="bilinear"):
        return F.interpolate(self.uniform(b, 1, cells_y, cells_x, least=-1.0), (self.height, self.width), mode=mode)[:, 0]

    def background_colour(self, main):
        """[b, 3]: one that stands out from the main one."""
        b = len(main)
        tries = self.uniform(b, 12, 1) + self.uniform(b, 12, 3, least=-0.25, most=0.25)
        tries = tries.clamp(0, 1)
        far = ((tries - main[:, None]).norm(dim=-1) > 0.45).float()
        return tries[torch.arange(b, device=self.device), far.argmax(1)]

    def background(self, main):
        """[b, 3, height, width]: a colour with structure in its brightness or hue."""
        b = len(main)
        base = self.background_colour(main)
        angle = self.one(b, most=2 * math.pi)
        along = (torch.cos(angle) * (self.x - self.width / 2) + torch.sin(angle) * (self.y - self.height / 2)) / self.side
        split = torch.tanh((along + self.one(b, -0.25, 0.25)) * self.one(b, 40, 200))
        step, thick = self.side * self.one(b, 0.05, 0.17), self.side * self.one(b, 0.005, 0.013)
        lines = ((self.x % step < thick) | (self.y % step < thick)).float()
        bars = self.field(b, 32, 1, "nearest")
        kinds = torch.stack([torch.zeros_like(split), along * 2, split, self.field(b, 4, 4), self.field(b, 12, 12), lines, bars,
                             bars.transpose(1, 2)], 1)
        kind = torch.randint(kinds.shape[1], (b,), device=self.device)
        texture = kinds[torch.arange(b, device=self.device), kind] * self.one(b, 0.03, 0.17)
        tint = 1 + self.uniform(b, 3, 1, 1, least=-0.4, most=0.4)
        return (base[..., None, None] + texture[:, None] * tint).clamp(0, 1)

    def pattern_mask(self, pattern, radius):
        """[b, height, width]: where the second colour shows."""
        b = len(pattern)
        step = (radius[:, None, None] * self.one(b, 0.32, 0.6)).clamp(min=0.036 * self.side)
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
            side = int(torch.randint(SMALLEST, self.side + 1, ()))
            smaller = [side * n // self.side for n in (self.height, self.width)]
            small = F.interpolate(quarters[i], smaller, mode="bilinear", antialias=True)
            quarters[i] = F.interpolate(small, (self.height, self.width), mode="bilinear")
        return torch.cat(quarters)

    def compile(self):
        for name in ("background", "pattern_mask", "with_shape", "with_faults_of_a_camera"):
            setattr(self, name, torch.compile(getattr(self, name), dynamic=False))

    @torch.no_grad()
    def __call__(self, colour, shape, pattern, count):
        """Pictures [b, 3, height, width] as the model sees them, in [-1, 1]. All arguments [b] indices; count from 0."""
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
