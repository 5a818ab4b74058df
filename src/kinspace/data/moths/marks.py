"""Painting a wing: its ground, then every mark of its pattern. Colors are (3, pixels)."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from kinspace.data.moths.palette import Array, Tones, clipped
from kinspace.data.moths.species import Band, Eyespot, Pattern, Spot
from kinspace.data.moths.textures import clouds, grain, hairs, look_up
from kinspace.data.moths.wings import CELLS, SAMPLES, WingPixels

__all__ = ["SHAPES", "clear_parts", "paint_marks"]


def _blend(color: Array, tone: Array, mask: Array) -> None:
    color += (tone - color) * mask


def _soft(distance: Array, width: float) -> Array:
    """1 where the distance is well below 0, 0 where it is well above."""
    return clipped(0.5 - distance * (1 / width))


@lru_cache(maxsize=1024)
def _wave(band: Band) -> Array:
    """Where the band's middle lies, from the leading to the trailing edge."""
    f = np.linspace(0, 1, SAMPLES, dtype=np.float32)
    turns = band.waves * f
    shape = {
        "straight": np.zeros_like(f),
        "wavy": np.sin(2 * np.pi * turns),
        "zigzag": 4 * np.abs(turns % 1 - 0.5) - 1,
        "scalloped": 2 * np.abs(np.sin(np.pi * turns)) - 1,
    }[band.wave]
    line: Array = band.place + band.tilt * (f - 0.5) + band.amplitude * shape
    return line.astype(np.float32)


def _paint_band(color: Array, wing: WingPixels, band: Band, tone: Array, drift: float) -> None:
    middle = _wave(band)[wing.sample] + np.float32(drift)
    gap = np.abs(wing.rho - middle) - band.width
    _blend(color, tone, band.strength * _soft(gap, 1.6 * wing.step / wing.length))


def _place(wing: WingPixels, field: Array, along: float, across: float) -> tuple[Array, Array]:
    """Every pixel's offset from a point on the wing."""
    radius = along * float(field[int(across * (SAMPLES - 1))])
    angle = across * wing.sweep
    return wing.along - radius * math.cos(angle), wing.across - radius * math.sin(angle)


def _kidney(p: Array, q: Array) -> Array:
    kidney: Array = np.maximum(np.hypot(p * 1.5, q) - 1, 0.62 - np.hypot(p * 1.2 - 0.85, q))
    return kidney


SHAPES: dict[str, Callable[[Array, Array], Array]] = {  # below 0 inside, in units of the size
    "dot": lambda p, q: np.sqrt(p * p + q * q) - 0.8,
    "kidney": _kidney,
    "bar": lambda p, q: np.maximum(np.abs(p) - 0.32, np.abs(q) - 1.05),
    "crescent": lambda p, q: np.maximum(np.hypot(p, q) - 1, 0.95 - np.hypot(p - 0.6, q)),
    "ring": lambda p, q: np.abs(np.hypot(p, q) - 0.75) - 0.24,
    "wedge": lambda p, q: np.maximum(np.abs(q) + 0.55 * p - 0.6, -p - 0.8),
}


def _paint_spot(color: Array, wing: WingPixels, field: Array, spot: Spot, tone: Array) -> None:
    p, q = _place(wing, field, spot.along, spot.across)
    near = np.flatnonzero(np.maximum(np.abs(p), np.abs(q)) < 2 * spot.size)
    scale = 1 / spot.size
    distance = SHAPES[spot.shape](p[near] * (scale / spot.aspect), q[near] * (scale * spot.aspect))
    color[:, near] += (tone - color[:, near]) * (0.92 * _soft(distance, 1.8 * wing.step * scale))


def _paint_eye(color: Array, wing: WingPixels, field: Array, eye: Eyespot, tones: Tones) -> None:
    p, q = _place(wing, field, eye.along, eye.across)
    near = np.flatnonzero(p * p + q * q < (1.3 * eye.size) ** 2)
    p, q = p[near], q[near]
    distance = np.sqrt(p * p + q * q)
    part = color[:, near]
    for i, ring in enumerate(eye.rings):
        radius = eye.size * (1 - 0.8 * i / len(eye.rings))
        if i == len(eye.rings) - 1:  # the pupil: a small crescent off the center
            distance = np.hypot(p + 0.12 * eye.size, q)
            radius = 0.2 * eye.size
        _blend(part, tones[ring], _soft(distance - radius, 1.5 * wing.step))
    color[:, near] = part


def _paint_streaks(color: Array, wing: WingPixels, pattern: Pattern, tone: Array) -> None:
    for across, start, end in pattern.streaks:
        # Thickest in the middle, pointed at both ends.
        taper = clipped((wing.rho - start) * (end - wing.rho) * (4 / (end - start) ** 2))
        gap = np.abs(wing.phi - across) * wing.radius * wing.sweep - 0.022 * taper
        _blend(color, tone, 0.85 * _soft(gap, 1.6 * wing.step) * (taper > 0))


def _paint_edge(color: Array, wing: WingPixels, pattern: Pattern, tones: Tones) -> None:
    """What runs along the outer edge: the border, a row of dots, the fringe."""
    cell = wing.phi * CELLS
    if pattern.edge:
        border = 1 - pattern.edge * (0.75 + 0.25 * np.sin(np.pi * wing.phi))
        _blend(color, tones["dark"], 0.9 * _soft(border - wing.rho, 0.05))
    if pattern.edge_spots:
        p, q = (wing.rho - 0.9) * (1 / 0.034), (cell % 1 - 0.5) * (1 / 0.24)
        _blend(color, tones[pattern.edge_spots], 0.85 * _soft(p * p + q * q - 1, 0.8))
    fringe = np.where(wing.tail, _soft(wing.inside - 0.025, 0.02), _soft(0.955 - wing.rho, 0.02))
    if pattern.fringe == "checkered":
        dark = (cell % 1 < 0.5)[None]
        _blend(color, np.where(dark, tones["dark"], tones["pale"]), 0.85 * fringe)
    else:
        tone = {"plain": "shade", "pale": "pale", "dark": "dark"}[pattern.fringe]
        _blend(color, tones[tone], 0.7 * fringe)


def _paint_costa(color: Array, wing: WingPixels, count: int, tone: Array) -> None:
    depth = wing.phi * wing.radius * wing.sweep  # distance from the leading edge
    near = _soft(depth - 0.055, 0.03)
    turn = (wing.rho - 0.22) * (count / 0.68)
    dots = _soft(np.abs(turn % 1 - 0.5) - 0.2, 0.14) * ((wing.rho > 0.22) & (wing.rho < 0.9))
    _blend(color, tone, 0.85 * near * dots)


def _vein_mask(wing: WingPixels) -> Array:
    cell = wing.phi * CELLS
    gap = np.abs(cell - np.rint(cell)) * wing.radius * (wing.sweep / CELLS)
    return _soft(gap - 0.5 * wing.step, 1.6 * wing.step) * clipped(4 * wing.rho - 0.8)


def _paint_ground(wing: WingPixels, pattern: Pattern, tones: Tones, offset: float) -> Array:
    """Darker at the hinge and before the edge, clouded, with the fine streaks of the scales."""
    color = np.repeat(tones["ground"], len(wing.rho), axis=1)
    away = 0.5 * clipped(0.45 - wing.rho) + 0.5 * clipped(wing.rho - 0.8, 0.2)
    _blend(color, tones["shade"], away)
    u, v = wing.along * 60 + offset, wing.across * 60 + 0.7 * offset
    cloud = look_up(clouds(), u, v)
    _blend(color, tones["shade"], clipped(pattern.mottle * cloud, 0.8))
    _blend(color, tones["pale"], clipped(-0.5 * pattern.mottle * cloud, 0.5))
    streaks = look_up(hairs(), wing.phi * 220 + offset, wing.radius * 200 + offset)
    color *= 1 + 0.055 * streaks
    return color


def paint_marks(
    wing: WingPixels, field: Array, pattern: Pattern, tones: Tones, drift: float, offset: float
) -> Array:
    """The wings' colors (3, pixels); `offset` moves the clouds, `drift` the lines."""
    color = _paint_ground(wing, pattern, tones, offset)
    for band in pattern.bands:
        _paint_band(color, wing, band, tones[band.tone], drift)
    if pattern.streaks:
        _paint_streaks(color, wing, pattern, tones[pattern.streak_tone])
    if pattern.speckles:
        dots = look_up(grain(), wing.along * 105 + offset, wing.across * 105 + offset)
        _blend(color, tones["dark"], 0.8 * clipped(2 * dots + 8 * pattern.speckles - 4.2))
    if pattern.veins:
        _blend(color, tones[pattern.vein_tone], pattern.veins * _vein_mask(wing))
    if pattern.costal_spots:
        _paint_costa(color, wing, pattern.costal_spots, tones["dark"])
    for spot in pattern.spots:
        _paint_spot(color, wing, field, spot, tones[spot.tone])
    for eye in pattern.eyespots:
        _paint_eye(color, wing, field, eye, tones)
    _paint_edge(color, wing, pattern, tones)
    return color


def clear_parts(wing: WingPixels, pattern: Pattern) -> Array:
    """Where the membrane shows: within the window, between the veins and beside the bars."""
    depth = wing.phi * wing.radius * wing.sweep
    clear = _soft(wing.rho - pattern.window, 0.04) * _soft(0.05 - depth, 0.03)
    clear *= 1 - _vein_mask(wing)
    for band in pattern.bands:
        gap = np.abs(wing.rho - _wave(band)[wing.sample]) - band.width
        clear *= 1 - _soft(gap, 1.6 * wing.step / wing.length)
    return clear * clipped(8 * wing.rho - 1)
