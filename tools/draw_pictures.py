"""Pictures of what the default model knows (tools/shapes.py), drawn with Pillow.

    python tools/draw_pictures.py examples/pictures      draws the example pictures

The model is trained on pictures that tools/render_pictures.py makes in another way. Those drawn here it sees for the
first time: crisp edges, larger sizes, other backgrounds. They are what it is judged by.
"""
import math
import pathlib
import random
import sys

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from shapes import COLOURS, COUNTS, outline


def colour(random_source, name):
    """RGB in [0, 1]"""
    hue, saturation, value = (random_source.uniform(*limits) for limits in COLOURS[name])
    rgb = []
    for n in (5, 3, 1):
        k = (n + hue % 360 / 60) % 6
        rgb.append(value - value * saturation * max(0.0, min(k, 4 - k, 1.0)))
    return tuple(rgb)


def to8(rgb):
    return tuple(round(255 * c) for c in rgb)


def luminance(rgb):
    return 0.3 * rgb[0] + 0.59 * rgb[1] + 0.11 * rgb[2]


BACKGROUNDS = ["plain", "sky and ground", "graph paper", "gradient", "wood", "bokeh"]


def background(random_source, kind, size, avoid):
    """A picture of that size, in colours that stand out from the colour to avoid."""
    def tone():
        for _ in range(100):
            base = random_source.random()
            rgb = tuple(min(1.0, max(0.0, base + random_source.uniform(-0.15, 0.15))) for _ in range(3))
            if math.dist(rgb, avoid) > 0.45:
                return rgb
        return (0.5, 0.5, 0.5)

    width, height = size
    first = tone()
    image = Image.new("RGB", size, to8(first))
    draw = ImageDraw.Draw(image)
    shade = lambda rgb, by: tuple(min(1.0, max(0.0, c + by)) for c in rgb)
    if kind == "sky and ground":
        draw.rectangle([0, int(height * random_source.uniform(0.5, 0.75)), width, height], fill=to8(shade(first, 0.12)))
    elif kind == "graph paper":
        step = width // random_source.randint(9, 15)
        for i in range(0, max(width, height), step):
            draw.line([i, 0, i, height], fill=to8(shade(first, -0.1)), width=max(1, width // 200))
            draw.line([0, i, width, i], fill=to8(shade(first, -0.1)), width=max(1, width // 200))
    elif kind == "gradient":
        for y in range(height):
            draw.line([0, y, width, y], fill=to8(shade(first, 0.2 * (y / height - 0.5))))
    elif kind == "wood":
        for y in range(0, height, max(2, height // 40)):
            draw.rectangle([0, y, width, y + max(2, height // 40)], fill=to8(shade(first, random_source.uniform(-0.05, 0.05))))
    elif kind == "bokeh":
        for _ in range(14):
            r = random_source.uniform(0.04, 0.16) * width
            x, y = random_source.uniform(0, width), random_source.uniform(0, height)
            draw.ellipse([x - r, y - r, x + r, y + r], fill=to8(shade(first, random_source.uniform(-0.07, 0.07))))
        image = image.filter(ImageFilter.GaussianBlur(width / 120))
    return image


def pattern_picture(random_source, pattern, size, radius, main, second):
    image = Image.new("RGB", size, to8(main))
    draw = ImageDraw.Draw(image)
    width, height = size
    step = radius * random_source.uniform(0.36, 0.5)
    if pattern == "striped":
        for i in range(int(-width / step) - 1, int(2 * width / step) + 2):
            x = i * step
            draw.polygon([(x, 0), (x + 0.42 * step, 0), (x + 0.42 * step, height), (x, height)], fill=to8(second))
        image = image.rotate(random_source.choice([0, 30, 45, 90, 135, 160]), Image.BICUBIC, fillcolor=to8(main))
    elif pattern == "dotted":
        for row in range(int(height / step) + 1):
            for column in range(int(width / step) + 1):
                x, y, r = (column + 0.5 * (row % 2)) * step, row * step, 0.26 * step
                draw.ellipse([x - r, y - r, x + r, y + r], fill=to8(second))
    elif pattern == "checked":
        step *= 0.75
        for row in range(int(height / step) + 1):
            for column in range(row % 2, int(width / step) + 1, 2):
                draw.rectangle([column * step, row * step, (column + 1) * step - 1, (row + 1) * step - 1], fill=to8(second))
    return image


def places(random_source, count, width, height):
    """Centres and radii of `count` shapes that do not touch."""
    side = min(width, height)
    limits = {1: (0.22, 0.42), 2: (0.16, 0.24), 3: (0.14, 0.21), 4: (0.14, 0.2)}[count]
    while True:
        found = []
        for _ in range(200):
            r = side * random_source.uniform(*limits)
            x, y = random_source.uniform(r, width - r), random_source.uniform(r, height - r)
            if all(math.hypot(x - a, y - b) > 1.05 * (r + c) for a, b, c in found):
                found.append((x, y, r))
            if len(found) == count:
                return found


def draw(seed, shape, colour_name, pattern="solid", count=1, size=(160, 160), background_kind=None):
    """One picture. The same arguments give the same picture."""
    rnd = random.Random(f"{seed} {shape} {colour_name} {pattern} {count}")
    scale = 3
    big = (size[0] * scale, size[1] * scale)
    main = colour(rnd, colour_name)
    image = background(rnd, background_kind or rnd.choice(BACKGROUNDS), big, main)
    second = (0.97, 0.97, 0.97) if luminance(main) < 0.55 else (0.08, 0.08, 0.1)
    if colour_name in ("white", "black"):  # white checks on black are black checks on white
        second = (0.52, 0.52, 0.54)
    u, tilt = rnd.random(), rnd.uniform(-25, 25)
    for x, y, radius in places(rnd, count, *big):
        angle = math.radians(tilt + rnd.uniform(-8, 8))
        turn = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
        mask = Image.new("1", big, 0)
        for polygon in outline(shape, u):
            layer = Image.new("1", big, 0)
            ImageDraw.Draw(layer).polygon([tuple(p) for p in (polygon @ turn) * radius + (x, y)], fill=1)
            mask = Image.fromarray(np.logical_xor(np.array(mask), np.array(layer)))
        image.paste(pattern_picture(rnd, pattern, big, radius, main, second), mask=mask)
    return image.resize(size, Image.LANCZOS)


# Kept small as PNG: no noise, few colours.
EXAMPLES = [
    ("red", "circle", "solid", 1, (160, 160), "plain"), ("red", "circle", "solid", 1, (220, 160), "graph paper"),
    ("red", "circle", "striped", 1, (160, 160), "sky and ground"), ("red", "heart", "solid", 1, (160, 200), "wood"),
    ("red", "heart", "solid", 3, (200, 160), "plain"), ("blue", "star", "solid", 1, (160, 160), "graph paper"),
    ("blue", "star", "solid", 4, (160, 160), "sky and ground"), ("blue", "square", "checked", 1, (160, 160), "wood"),
    ("blue", "square", "checked", 2, (220, 140), "plain"), ("green", "triangle", "solid", 1, (160, 160), "sky and ground"),
    ("green", "triangle", "striped", 1, (180, 160), "graph paper"), ("green", "triangle", "striped", 2, (160, 160), "plain"),
    ("yellow", "star", "solid", 1, (200, 160), "plain"), ("yellow", "crescent", "solid", 1, (160, 160), "wood"),
    ("yellow", "crescent", "solid", 2, (160, 160), "graph paper"), ("purple", "ring", "solid", 1, (160, 160), "plain"),
    ("purple", "ring", "solid", 3, (160, 160), "sky and ground"), ("orange", "arrow", "solid", 1, (220, 140), "wood"),
    ("orange", "arrow", "dotted", 1, (160, 160), "plain"), ("pink", "hexagon", "dotted", 1, (160, 160), "graph paper"),
    ("pink", "hexagon", "dotted", 2, (200, 160), "sky and ground"), ("black", "cross", "solid", 1, (160, 160), "plain"),
    ("cyan", "half circle", "solid", 1, (160, 160), "wood"), ("cyan", "half circle", "solid", 1, (180, 180), "sky and ground"),
]


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for i, (colour_name, shape, pattern, count, size, ground) in enumerate(EXAMPLES):
        words = ([COUNTS[count - 1]] if count > 1 else []) + ([pattern] if pattern != "solid" else []) + [colour_name] + shape.split()
        ground_word = {"plain": "", "sky and ground": "-horizon", "graph paper": "-paper", "wood": "-wood"}[ground]
        path = folder / ("-".join(words) + ("s" if count > 1 else "") + ground_word + ".png")
        draw(f"example {i}", shape, colour_name, pattern, count, size, ground).save(path, optimize=True)
        print(f"{path} {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
