"""Backgrounds, (size, size, 3), from noise at a random place and angle."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from kinspace.data.moths.palette import Array, clipped, rgb
from kinspace.data.moths.textures import PERIOD, clouds, grain, hairs, look_between, look_up

__all__ = ["SURFACES", "paint_background"]


class _Plane:
    """Coordinates of the pixels, turned and moved at random; the picture is 2 wide."""

    def __init__(self, size: int, rng: np.random.Generator, lean: float = math.pi) -> None:
        ticks = (np.arange(size, dtype=np.float32) + 0.5) * (2 / size) - 1
        turn = rng.uniform(-lean, lean)
        cos, sin = math.cos(turn), math.sin(turn)
        self.u: Array = cos * ticks[None, :] + sin * ticks[:, None]
        self.v: Array = cos * ticks[:, None] - sin * ticks[None, :]
        self.start = tuple((4 * PERIOD + rng.uniform(0, PERIOD, 2)).tolist())

    def noise(self, texture: Array, scale: float, stretch: float = 1.0, shift: int = 0) -> Array:
        first, second = self.start
        # Where texels are no larger than pixels, the nearest one does.
        look = look_up if 2 * scale >= self.u.shape[0] else look_between
        return look(
            texture, self.u * (scale * stretch) + first + shift, self.v * scale + second + shift
        )


def _ramp(share: Array, low: str, high: str) -> Array:
    """Colors from the one (share 0) to the other (share 1)."""
    return rgb(low) + (rgb(high) - rgb(low)) * clipped(share)[..., None]


def _bark(size: int, rng: np.random.Generator) -> Array:
    plane = _Plane(size, rng, lean=0.5)
    plane.u = plane.u + 0.08 * plane.noise(clouds(), 20)
    ridges = plane.noise(clouds(), 7, stretch=5)
    fine = plane.noise(hairs(), 45)
    cracks = clipped(1.1 - 3 * np.abs(ridges))
    tones = (("umber", "ash"), ("charcoal", "buff"), ("chestnut", "buff"), ("umber", "olive"))
    color = _ramp(0.5 + 0.16 * ridges + 0.09 * fine, *tones[int(rng.integers(len(tones)))])
    return color * (1 - 0.5 * cracks[..., None])


def _leaf(size: int, rng: np.random.Generator) -> Array:
    plane = _Plane(size, rng)
    u = plane.u + rng.uniform(-0.7, 0.7)
    spacing = rng.uniform(0.28, 0.42)
    side = (plane.v + 0.75 * np.abs(u)) / spacing
    ribs = clipped(1 - np.abs(side - np.rint(side)) * spacing * 26) * 0.5
    rib = clipped(1 - np.abs(u) * 20)
    cells = plane.noise(grain(), 34)
    shade = 0.5 + 0.13 * plane.noise(clouds(), 24) + 0.04 * cells
    shade = shade + 0.12 * np.sin(2 * np.pi * side)  # the blade bulges between the ribs
    tones = (("moss", "jade"), ("charcoal", "moss"), ("olive", "lemon"), ("chestnut", "ochre"))
    color = _ramp(shade, *tones[int(rng.integers(len(tones)))])
    vein = np.maximum(rib, ribs)[..., None]
    color += (0.32 - 0.4 * color) * (0.8 * vein)
    return color


def _linen(size: int, rng: np.random.Generator) -> Array:
    plane = _Plane(size, rng)
    threads = 34.0
    weave = np.sin(threads * math.pi * plane.u) * np.sin(threads * math.pi * plane.v)
    folds = plane.noise(clouds(), 9, stretch=0.5)
    shade = 0.8 + 0.10 * folds + 0.05 * weave + 0.03 * plane.noise(hairs(), 80)
    tones = (("slate", "white"), ("buff", "white"), ("ash", "chalk"))
    return _ramp(shade, *tones[int(rng.integers(len(tones)))])


def _wall(size: int, rng: np.random.Generator) -> Array:
    plane = _Plane(size, rng)
    shade = 0.5 + 0.07 * plane.noise(clouds(), 40) + 0.05 * plane.noise(grain(), 60)
    tones = (
        ("buff", "chalk"),
        ("ash", "white"),
        ("rust", "cream"),
        ("slate", "ash"),
        ("olive", "cream"),
    )
    return _ramp(shade, *tones[int(rng.integers(len(tones)))])


def _stone(size: int, rng: np.random.Generator) -> Array:
    plane = _Plane(size, rng)
    rough = plane.noise(clouds(), 50)
    specks = plane.noise(grain(), 70)
    tones = (("charcoal", "ash"), ("slate", "chalk"), ("umber", "cream"))
    color = _ramp(0.48 + 0.14 * rough + 0.12 * specks, *tones[int(rng.integers(len(tones)))])
    lichen = clipped(3 * (plane.noise(clouds(), 26, shift=97) - rng.uniform(0.5, 2.0)))
    tone = rgb(("ochre", "jade", "chalk")[int(rng.integers(3))]) * (0.9 + 0.1 * specks[..., None])
    return color + (tone - color) * (0.75 * lichen[..., None])


def _night(size: int, rng: np.random.Generator) -> Array:
    plane = _Plane(size, rng)
    shade = 0.14 + 0.05 * plane.noise(clouds(), 14)
    color = _ramp(shade, "black", "slate") * np.array([0.8, 0.95, 1.25], np.float32)
    for _ in range(int(rng.integers(0, 5))):  # lamps far out of focus
        x, y, radius = rng.uniform(-1, 1), rng.uniform(-1, 1), rng.uniform(0.08, 0.22)
        distance = np.sqrt((plane.u - x) ** 2 + (plane.v - y) ** 2)
        disk = clipped((radius - distance) * 14) * rng.uniform(0.1, 0.4)
        lamp = rgb(("lemon", "orange", "azure", "cream")[int(rng.integers(4))])
        color = color + lamp * disk[..., None]
    return color


SURFACES: dict[str, Callable[[int, np.random.Generator], Array]] = {
    "bark": _bark,
    "leaf": _leaf,
    "linen": _linen,
    "wall": _wall,
    "stone": _stone,
    "night": _night,
}


def paint_background(name: str, size: int, rng: np.random.Generator) -> Array:
    """The surface of that name, (size, size, 3), about 0 to 1."""
    color = SURFACES[name](size, rng)
    warmth = rng.normal(0.0, 0.04)
    return color * np.array([1 + warmth, 1.0, 1 - warmth], np.float32) * rng.uniform(0.85, 1.1)
