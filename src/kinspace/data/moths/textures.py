"""Noise that repeats without a seam: drawn once, then reused."""

from __future__ import annotations

from functools import cache

import numpy as np

from kinspace.data.moths.palette import Array

__all__ = ["PERIOD", "clouds", "grain", "hairs", "look_between", "look_up", "speckle"]

PERIOD = 256  # a power of two: wrapping around is one bit operation


def _filtered(seed: int, slope: float, cutoff: float, stretch: float = 1.0) -> Array:
    """Noise whose amplitude falls with the frequency to the power `slope`; mean 0, deviation 1."""
    white = np.random.default_rng(seed).standard_normal((PERIOD, PERIOD))
    across = np.fft.fftfreq(PERIOD)[:, None] * PERIOD
    along = np.fft.rfftfreq(PERIOD)[None, :] * PERIOD * stretch
    frequency = np.hypot(across, along)
    weight = 1 / (frequency + 2.0) ** slope * np.exp(-((frequency / cutoff) ** 2))
    weight[0, 0] = 0.0
    noise = np.fft.irfft2(np.fft.rfft2(white) * weight, s=white.shape)
    scaled: Array = (noise / noise.std()).astype(np.float32)
    return scaled


@cache
def clouds() -> Array:
    """Soft clouds with detail at every scale."""
    return _filtered(1, 1.5, 90.0)


@cache
def grain() -> Array:
    """Fine grain, a few pixels wide."""
    return _filtered(2, 0.0, 70.0)


@cache
def hairs() -> Array:
    """Fine streaks along the second axis."""
    return _filtered(3, 0.6, 110.0, stretch=9.0)


@cache
def _normals() -> Array:
    return np.random.default_rng(4).standard_normal(1 << 20, dtype=np.float32)


def speckle(rng: np.random.Generator, count: int) -> Array:
    """Normal noise: a random piece of a long row, which is quicker than new numbers."""
    row = _normals()
    if count > len(row) // 2:
        return rng.standard_normal(count, dtype=np.float32)
    start = int(rng.integers(len(row) - count))
    return row[start : start + count]


def look_up(texture: Array, first: Array, second: Array) -> Array:
    """The texture's values at these places (not negative), wrapped around.

    >>> look_up(grain(), np.array([256.2]), np.array([3.0])) == grain()[0, 3]
    array([ True])
    """
    rows = first.astype(np.int32) & (PERIOD - 1)
    columns = second.astype(np.int32) & (PERIOD - 1)
    values: Array = texture[rows, columns]
    return values


def look_between(texture: Array, first: Array, second: Array) -> Array:
    """`look_up` that blends the four nearest values: smooth where the texture is enlarged."""
    whole_row, whole_column = np.floor(first), np.floor(second)
    down, over = first - whole_row, second - whole_column
    row, column = whole_row.astype(np.int32), whole_column.astype(np.int32)
    wrap = PERIOD - 1
    above, below = (row & wrap) * PERIOD, ((row + 1) & wrap) * PERIOD
    left, right = column & wrap, (column + 1) & wrap
    flat = texture.ravel()
    top = flat[above + left] * (1 - over) + flat[above + right] * over
    bottom = flat[below + left] * (1 - over) + flat[below + right] * over
    values: Array = top + (bottom - top) * down
    return values
