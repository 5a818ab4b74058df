"""The body: abdomen, thorax, head, antennae and legs; and the wings on it in the moth's pose."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from kinspace.data.moths.canvas import Canvas, Stroke
from kinspace.data.moths.individual import Individual, Pose
from kinspace.data.moths.palette import Array, Tones, clipped
from kinspace.data.moths.species import Body, Genus, Outline
from kinspace.data.moths.textures import grain, hairs, look_up
from kinspace.data.moths.wings import SAMPLES, Pair, angle_of, edge_tables

__all__ = ["bounds", "hang_wings", "head_place", "paint_abdomen", "paint_limbs", "paint_thorax"]

_THORAX = -0.2


def _lit(color: Array, x: Array, y: Array, light: tuple[float, float]) -> Array:
    """The color of a rounded surface whose normal leans towards (x, y)."""
    return color * np.clip(0.92 + 0.38 * (x * light[0] + y * light[1]), 0.35, 1.4)


def paint_abdomen(canvas: Canvas, body: Body, tones: Tones, light: tuple[float, float]) -> None:
    """A tapering abdomen with rings and a tuft at its end."""
    top, length, girth = -0.1, body.length + 0.1, body.width * body.girth
    near = np.flatnonzero(
        (canvas.beside < 1.3 * girth) & (canvas.y > top) & (canvas.y < top + 1.1 * length)
    )
    x, y = canvas.x[near], canvas.y[near]
    t = (y - top) * (1 / length)
    fuzz = look_up(grain(), 4000 + x * 120, 4000 + y * 120)
    half = girth * np.sqrt(clipped(1 - np.maximum(t, 0) ** 2.2)) * (1.02 - 0.25 * t)
    inside = half + 0.012 * body.fur * fuzz * (t < 0.95) - np.abs(x)
    cover = clipped(inside * (0.7 / canvas.step) + 0.5)
    color = np.repeat(tones["body"], len(x), axis=1)
    ring = clipped(2.2 * np.sin(2 * np.pi * 6.5 * t) - 0.9) * clipped(6 * t - 1)
    color += (tones[body.rings] - color) * (0.7 * ring)
    color *= 1 + 0.07 * fuzz
    canvas.paint(near, _lit(color, x / (half + 0.02), 0.25 * (t - 0.4), light), cover)


def paint_thorax(canvas: Canvas, body: Body, tones: Tones, light: tuple[float, float]) -> None:
    """A furry thorax with a collar, and the head with its eyes."""
    wide, tall = body.width, 1.25 * body.width
    reach = 1.7 * wide + 0.06
    near = np.flatnonzero((canvas.beside < 1.3 * wide) & (np.abs(canvas.y - _THORAX) < reach))
    x, y = canvas.x[near], canvas.y[near]
    _paint_head(canvas, near, body, tones, light)
    p, q = x * (1 / wide), (y - _THORAX) * (1 / tall)
    radius = np.sqrt(p * p + q * q)
    tuft = look_up(hairs(), 2000 + angle_of(q, np.abs(p), radius) * 20, 2000 + radius * 30)
    hair = look_up(hairs(), 2000 + x * 150, 2000 + y * 110)
    inside = (1 + 0.09 * body.fur * tuft - radius) * wide
    cover = clipped(inside * (0.6 / canvas.step) + 0.5)
    color = np.repeat(tones["thorax"], len(x), axis=1)
    collar = clipped(1 - np.abs(q + 0.62 + 0.2 * p * p) * 7)
    color += (tones["collar"] - color) * (0.75 * collar)
    stripe = clipped(1 - np.abs(np.abs(p) - 0.5 + 0.12 * q) * 6) * (q > -0.5)
    color += (tones["shade"] - color) * (0.6 * stripe)
    color *= 1 + 0.08 * body.fur * (hair + 0.5 * tuft)
    canvas.paint(near, _lit(color, p, q, light), cover)


def _paint_head(
    canvas: Canvas, near: NDArray[np.intp], body: Body, tones: Tones, light: tuple[float, float]
) -> None:
    x, y = canvas.x[near], canvas.y[near]
    size = 0.46 * body.width + 0.012
    p, q = x * (1 / size), (y - head_place(body)) * (1 / size)
    radius = np.sqrt(p * p + q * q)
    eye = np.sqrt((np.abs(p) - 0.75) ** 2 + (q + 0.1) ** 2)
    canvas.paint(near, tones["black"], clipped((0.36 - eye) * (size / canvas.step) + 0.5))
    cover = clipped((0.85 - radius) * (0.7 * size / canvas.step) + 0.5)
    color = np.repeat(tones["thorax"], len(x), axis=1) * 0.92
    canvas.paint(near, _lit(color, p, q, light), cover)


def head_place(body: Body) -> float:
    """Where the head's center lies along the body."""
    return _THORAX - 1.2 * body.width - 0.015


def paint_limbs(canvas: Canvas, genus: Genus, pose: Pose, color: Array) -> None:
    """The forelegs beside the head, and the antennae."""
    strokes: list[Stroke] = []
    wide, top = genus.body.width, head_place(genus.body)
    for side in (-1, 1):
        foot = 1.2 + 4 * side * pose.uneven
        knee = (side * 1.25 * wide, top + 0.05)
        strokes.append(([(side * 0.5 * wide, top + 0.15), knee], 0.026))
        strokes.append(([knee, (side * foot * wide, top - 0.07)], 0.016))
        strokes += _antenna(genus, pose, side)
    canvas.draw(strokes, color)


def _antenna(genus: Genus, pose: Pose, side: int) -> list[Stroke]:
    """Threadlike, clubbed or feathered."""
    (heading, bend), segments = pose.antennae, 14
    length = {"threadlike": 0.46, "clubbed": 0.42, "feathered": 0.32}[genus.antennae] / segments
    x, y = side * 0.3 * genus.body.width, head_place(genus.body) - 0.03
    points = [(x, y)]
    for _ in range(segments):
        x += side * math.sin(heading) * length
        y -= math.cos(heading) * length
        heading += bend / segments
        points.append((x, y))
    strokes: list[Stroke] = [(points, 0.016)]
    if genus.antennae == "clubbed":
        strokes += [(points[9:12], 0.024), (points[10:], 0.036), (points[12:], 0.042)]
    if genus.antennae == "feathered":
        strokes += _barbs(points)
    return strokes


def _barbs(points: list[tuple[float, float]]) -> list[Stroke]:
    """Side branches on both sides, longest in the middle, leaning towards the tip."""
    strokes: list[Stroke] = []
    for i, ((x0, y0), (x1, y1)) in enumerate(pairwise(points)):
        step = math.hypot(x1 - x0, y1 - y0)
        size = 0.085 * math.sin(math.pi * (i + 1.4) / (len(points) + 0.8)) / step
        dx, dy = size * (x1 - x0), size * (y1 - y0)
        right = (x0 + 0.5 * dx - 0.85 * dy, y0 + 0.5 * dy + 0.85 * dx)
        left = (x0 + 0.5 * dx + 0.85 * dy, y0 + 0.5 * dy - 0.85 * dx)
        strokes.append(([right, (x0, y0), left], 0.009))
    return strokes


_FORE_HINGE = (0.06, -0.27)
_HIND_HINGE = (0.05, -0.18)
_PLACES = np.linspace(0, 1, SAMPLES, dtype=np.float32)
_tables = lru_cache(maxsize=512)(edge_tables)


def _torn(wear: str, rng: np.random.Generator) -> Array:
    """What is left of the outer edge, as a share."""
    left = np.ones(SAMPLES, np.float32)
    bites = {"fresh": 0, "worn": 2, "tattered": 5}[wear]
    for _ in range(int(rng.integers(bites // 2, bites + 1))):
        middle, width = rng.uniform(0.05, 0.95), rng.uniform(0.01, 0.05)
        depth = rng.uniform(0.03, 0.16)
        left *= 1 - depth * clipped(1.4 - np.abs(_PLACES - middle) * (1 / width))
    return left


def _pair(
    outline: Outline,
    hinge: tuple[float, float],
    angles: tuple[float, float],
    moth: Individual,
    rng: np.random.Generator,
) -> Pair:
    field, tail = _tables(outline)
    edges = np.concatenate([(field + tail) * _torn(moth.wear, rng) for _ in angles])
    flat = 0.86 + 0.14 * moth.pose.openness  # a folded wing is a roof, seen from above
    narrow = (flat * (1 + moth.pose.roll), flat * (1 - moth.pose.roll))
    return Pair(outline, field, tail, edges, hinge, angles, narrow)


def hang_wings(genus: Genus, moth: Individual, rng: np.random.Generator) -> tuple[Pair, Pair]:
    """The forewings and hindwings, opened as the pose has them."""
    pose = moth.pose
    # Degrees behind sideways at which the leading edges lie when folded and when spread.
    folded = 104 + math.degrees(genus.fore.arch) - genus.fore.sweep
    spread = genus.rear - genus.fore.sweep
    tucked, out = folded + 5, 98 - genus.hind.sweep  # below the forewing, or beside the abdomen
    fore = math.radians(folded + (spread - folded) * pose.openness)
    hind = math.radians(tucked + (out - tucked) * min(1.0, 1.3 * pose.openness))
    fore_off, hind_off = pose.uneven * (0.3 + pose.openness), 0.5 * pose.uneven
    return (
        _pair(genus.fore, _FORE_HINGE, (fore + fore_off, fore - fore_off), moth, rng),
        _pair(genus.hind, _HIND_HINGE, (hind + hind_off, hind - hind_off), moth, rng),
    )


def bounds(genus: Genus, fore: Pair, hind: Pair) -> tuple[float, float]:
    """Where the moth's middle lies along the body, and its radius."""
    xs, ys = [0.45], [head_place(genus.body) - 0.2, genus.body.length + 0.02]
    for pair in (fore, hind):
        angles = pair.angles[0] + np.linspace(0, 1, 17) * math.radians(pair.outline.sweep)
        edge = (pair.field + pair.tail)[:: (SAMPLES - 1) // 16][:17]
        xs += (pair.hinge[0] + pair.narrow[0] * edge * np.cos(angles)).tolist()
        ys += (pair.hinge[1] + edge * np.sin(angles)).tolist()
    middle = (min(ys) + max(ys)) / 2
    return middle, max(*xs, 0.92 * (max(ys) - middle))
