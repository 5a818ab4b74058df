"""The body: abdomen, thorax, head, antennae and legs."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from kinspace.data.moths.canvas import Canvas, Stroke
from kinspace.data.moths.individual import Pose
from kinspace.data.moths.palette import Array, clipped
from kinspace.data.moths.species import Body, Genus
from kinspace.data.moths.textures import grain, hairs, look_up
from kinspace.data.moths.tones import Tones
from kinspace.data.moths.wings import angle_of

__all__ = ["head_place", "paint_abdomen", "paint_antennae", "paint_legs", "paint_thorax"]

_THORAX = -0.2


def _lit(color: Array, x: Array, y: Array, light: tuple[float, float]) -> Array:
    """The color of a rounded surface whose normal leans towards (x, y)."""
    return color * np.clip(0.92 + 0.38 * (x * light[0] + y * light[1]), 0.35, 1.4)


def paint_abdomen(canvas: Canvas, body: Body, tones: Tones, light: tuple[float, float]) -> None:
    """A tapering abdomen with rings and a tuft at its end."""
    top, length, girth = -0.1, body.length + 0.1, body.width * body.girth
    near = np.flatnonzero(
        (np.abs(canvas.x) < 1.3 * girth) & (canvas.y > top) & (canvas.y < top + 1.1 * length)
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
    reach = 1.5 * tall + 0.1
    near = np.flatnonzero((np.abs(canvas.x) < 1.6 * wide) & (np.abs(canvas.y - _THORAX) < reach))
    x, y = canvas.x[near], canvas.y[near]
    _paint_head(canvas, near, body, tones, light)
    p, q = x * (1 / wide), (y - _THORAX) * (1 / tall)
    radius = np.sqrt(p * p + q * q)
    tuft = look_up(hairs(), 2000 + angle_of(q, p) * 20, 2000 + radius * 30)
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
    for offset in (-0.75, 0.75):
        eye = np.sqrt((p - offset) ** 2 + (q + 0.1) ** 2)
        cover = clipped((0.36 - eye) * (size / canvas.step) + 0.5)
        canvas.paint(near, tones["black"], cover)
    cover = clipped((0.85 - radius) * (0.7 * size / canvas.step) + 0.5)
    color = np.repeat(tones["thorax"], len(x), axis=1) * 0.92
    canvas.paint(near, _lit(color, p, q, light), cover)


def head_place(body: Body) -> float:
    """Where the head's center lies along the body."""
    return _THORAX - 1.2 * body.width - 0.015


def paint_antennae(canvas: Canvas, genus: Genus, pose: Pose, color: Array) -> None:
    """Threadlike, clubbed or feathered; both bend the same way."""
    strokes: list[Stroke] = []
    spread, bend = pose.antennae
    length = {"threadlike": 0.46, "clubbed": 0.42, "feathered": 0.32}[genus.antennae]
    for side in (-1, 1):
        points = []
        x, y = side * 0.3 * genus.body.width, head_place(genus.body) - 0.03
        heading = spread * 0.75
        for _ in range(13):
            points.append((x, y))
            x += side * math.sin(heading) * length / 12
            y -= math.cos(heading) * length / 12
            heading += bend / 12
        strokes.append((points, 0.016))
        if genus.antennae == "clubbed":
            strokes += [(points[8:11], 0.024), (points[9:13], 0.036), (points[10:13], 0.042)]
        if genus.antennae == "feathered":
            strokes += _barbs(points)
    canvas.draw(strokes, color)


def _barbs(points: list[tuple[float, float]]) -> list[Stroke]:
    """Side branches, longest in the middle, leaning towards the tip."""
    strokes: list[Stroke] = []
    for (x0, y0), (x1, y1), i in zip(points[:-1], points[1:], range(len(points)), strict=False):
        size = 0.085 * math.sin(math.pi * (i + 1.4) / (len(points) + 0.8))
        step = math.hypot(x1 - x0, y1 - y0)
        tx, ty = (x1 - x0) / step, (y1 - y0) / step
        for half in (0.0, 0.5):
            x, y = x0 + half * (x1 - x0), y0 + half * (y1 - y0)
            strokes += [
                ([(x, y), (x + size * (0.5 * tx + s * ty), y + size * (0.5 * ty - s * tx))], 0.009)
                for s in (-0.85, 0.85)
            ]
    return strokes


def paint_legs(canvas: Canvas, body: Body, pose: Pose, color: Array) -> None:
    """The forelegs beside the head."""
    wide, top = body.width, head_place(body)
    strokes: list[Stroke] = []
    for side in (-1, 1):
        foot = 1.2 + 4 * side * pose.uneven
        knee = (side * 1.25 * wide, top + 0.05)
        strokes.append(([(side * 0.5 * wide, top + 0.15), knee], 0.026))
        strokes.append(([knee, (side * foot * wide, top - 0.07)], 0.016))
    canvas.draw(strokes, color)
