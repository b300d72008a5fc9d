"""What the default model knows: shapes with their outlines, colours, patterns, counts."""
import math

import numpy as np

SHAPES = ["circle", "square", "triangle", "star", "heart", "ring", "cross", "hexagon", "rhombus", "crescent", "arrow", "half circle"]
PATTERNS = ["solid", "striped", "dotted", "checked"]
COUNTS = ["one", "two", "three", "four"]
# Hue in degrees, saturation and value: the least and the most.
COLOURS = {
    "red": ((-8, 8), (0.75, 1.0), (0.65, 1.0)),
    "orange": ((22, 35), (0.8, 1.0), (0.85, 1.0)),
    "yellow": ((50, 62), (0.7, 1.0), (0.85, 1.0)),
    "green": ((95, 145), (0.6, 1.0), (0.4, 0.85)),
    "cyan": ((172, 190), (0.6, 1.0), (0.75, 1.0)),
    "blue": ((210, 240), (0.7, 1.0), (0.55, 1.0)),
    "purple": ((265, 290), (0.55, 1.0), (0.45, 0.9)),
    "pink": ((315, 345), (0.3, 0.6), (0.9, 1.0)),
    "brown": ((18, 32), (0.55, 0.85), (0.3, 0.5)),
    "white": ((0, 360), (0.0, 0.06), (0.93, 1.0)),
    "black": ((0, 360), (0.0, 0.4), (0.0, 0.12)),
}
COLOUR_NAMES = list(COLOURS)


def arc(start, end, radius, steps, centre=(0.0, 0.0)):
    angles = [math.radians(start + (end - start) * i / steps) for i in range(steps + 1)]
    return [(centre[0] + radius * math.cos(a), centre[1] + radius * math.sin(a)) for a in angles]


def outline(shape, u):
    """Polygons of a shape; what lies in an odd number of them is inside. y grows downwards. u in [0, 1]: its proportions."""
    if shape == "circle":
        polygons = [arc(0, 360, 1, 48)]
    elif shape == "square":
        polygons = [arc(45, 405, 1, 4)]
    elif shape == "triangle":
        polygons = [arc(-90, 270, 1, 3)]
    elif shape == "star":
        points = 5
        inner = 0.36 + 0.12 * u
        polygons = [[(r * math.sin(math.pi * i / points), -r * math.cos(math.pi * i / points))
                     for i in range(2 * points) for r in [inner if i % 2 else 1.0]]]
    elif shape == "heart":
        polygons = [[(16 * math.sin(t) ** 3, -(13 * math.cos(t) - 5 * math.cos(2 * t) - (1.5 + u) * math.cos(3 * t) - math.cos(4 * t)))
                     for t in [2 * math.pi * i / 48 for i in range(48)]]]
    elif shape == "ring":
        polygons = [arc(0, 360, 1, 48), arc(0, 360, 0.48 + 0.14 * u, 40)]
    elif shape == "cross":
        a = 0.26 + 0.12 * u
        quarter = [(a, -1), (a, -a), (1, -a)]
        polygons = [[(x * c - y * s, x * s + y * c) for c, s in [(1, 0), (0, 1), (-1, 0), (0, -1)] for x, y in quarter]]
    elif shape == "hexagon":
        polygons = [arc(0, 360, 1, 6)]
    elif shape == "rhombus":
        a = 0.5 + 0.12 * u
        polygons = [[(0, -1), (a, 0), (0, 1), (-a, 0)]]
    elif shape == "crescent":
        # Two circles that meet at +-t of the outer one.
        t = 38 + 14 * u
        x, y = math.cos(math.radians(t)), math.sin(math.radians(t))
        centre = 0.42 + 0.1 * u
        radius = math.hypot(x - centre, y)
        inner = math.degrees(math.atan2(y, x - centre))
        polygons = [arc(t, 360 - t, 1, 36) + arc(360 - inner, inner, radius, 28, (centre, 0.0))]
    elif shape == "arrow":
        a, head = 0.2 + 0.1 * u, 0.1 + 0.15 * u
        polygons = [[(-1, -a), (head, -a), (head, -0.7), (1, 0), (head, 0.7), (head, a), (-1, a)]]
    else:
        assert shape == "half circle"
        polygons = [arc(180, 360, 1, 32)]
    points = np.array([p for polygon in polygons for p in polygon])
    middle = (points.min(0) + points.max(0)) / 2
    radius = np.linalg.norm(points - middle, axis=1).max()
    return [(np.array(polygon) - middle) / radius for polygon in polygons]
