"""Where a pixel lies on a wing: the outline by polar coordinates about the hinge."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kinspace.data.moths.canvas import Half
from kinspace.data.moths.palette import Array, clipped
from kinspace.data.moths.species import Outline

__all__ = ["CELLS", "SAMPLES", "Hung", "WingPixels", "angle_of", "edge_tables", "locate"]

SAMPLES = 512  # of the outer edge, from the leading to the trailing edge
CELLS = 7  # fields between the veins


@dataclass(frozen=True)
class Hung:
    """A wing hung on the body: its edge, the hinge and the leading edge's angle (radians)."""

    outline: Outline
    edge: Array  # radius of the outer edge, wear and tail included
    field: Array  # the same without: marks follow this one
    tail: Array  # how much of it the tail adds
    hinge: tuple[float, float]
    angle: float
    narrow: float = 1.0  # seen from the side a wing looks narrower


@dataclass(frozen=True)
class WingPixels:
    """The pixels one wing covers; all arrays (pixels,)."""

    pixels: NDArray[np.intp]
    rho: Array  # 0 at the hinge, 1 at the outer edge
    phi: Array  # 0 at the leading edge, 1 at the trailing edge
    radius: Array  # distance from the hinge
    along: Array  # Cartesian, along the leading edge
    across: Array
    sample: NDArray[np.int32]  # phi as an index into tables of SAMPLES
    inside: Array  # distance to the nearest edge
    tail: NDArray[np.bool_]  # before or on the tail, where the edge is not at rho = 1
    cover: Array
    step: float
    sweep: float  # radians
    length: float


def edge_tables(outline: Outline) -> tuple[Array, Array]:
    """The outer edge's radius from the leading to the trailing edge, and what the tail adds."""
    f = np.linspace(0, 1, SAMPLES, dtype=np.float32)
    sweep = math.radians(outline.sweep)
    # A straight line from the apex to the rear corner, in polar coordinates ...
    straight = math.sin(sweep) / (np.sin(f * sweep) / outline.corner + np.sin((1 - f) * sweep))
    # ... made convex, hollowed out below the apex, and rounded at both ends.
    edge = straight * (1 + outline.bulge * np.abs(np.sin(np.pi * f)) ** 0.8)
    edge *= 1 - outline.hook * np.exp(-(((f - 0.26) / 0.14) ** 2))
    edge *= 1 - 0.10 * np.exp(-f / 0.035) - 0.22 * np.exp(-(1 - f) / 0.07)
    lobes = 1 - np.abs(np.sin(np.pi * CELLS * f)) ** 0.7
    edge *= 1 - outline.scallop * lobes * clipped(8 * f)
    edge *= outline.length
    tail = outline.tail * np.exp(-(np.abs((f - outline.tail_place) / 0.075) ** 2.6))
    return edge.astype(np.float32), tail.astype(np.float32)


def angle_of(y: Array, x: Array) -> Array:
    """arctan2 to about 0.0003 radians, at a tenth of the time."""
    wide, high = np.abs(x), np.abs(y)
    ratio = np.minimum(wide, high) / (np.maximum(wide, high) + 1e-9)
    square = ratio * ratio
    angle = ((-0.0464964749 * square + 0.15931422) * square - 0.327622764) * square * ratio + ratio
    steep = high > wide
    angle[steep] = math.pi / 2 - angle[steep]
    behind = x < 0
    angle[behind] = math.pi - angle[behind]
    return np.copysign(angle, y, out=angle)


def locate(half: Half, wing: Hung, step: float) -> WingPixels:
    """The pixels of that half which the wing covers, with their places on it."""
    x = (half.x - wing.hinge[0]) * (1 / wing.narrow)
    y = half.y - wing.hinge[1]
    sweep = math.radians(wing.outline.sweep)
    middle = wing.angle + sweep / 2  # the wing lies about angle 0 after this turn: no wrap in it
    cos, sin = math.cos(middle), math.sin(middle)
    ahead = cos * x + sin * y
    near = np.flatnonzero((ahead > -step) & (ahead < float(wing.edge.max()) + 2 * step))
    x, y, ahead = x[near], y[near], ahead[near]
    radius = np.sqrt(x * x + y * y)
    theta = angle_of(cos * y - sin * x, ahead) + sweep / 2
    arched = np.minimum(radius * (1 / wing.outline.length), 1)
    theta += wing.outline.arch * 4 * arched * (1 - arched)
    phi = theta * (1 / sweep)
    sample = clipped(phi * (SAMPLES - 1), SAMPLES - 1).astype(np.int32)
    inside = np.minimum(radius * np.minimum(theta, sweep - theta), wing.edge[sample] - radius)
    keep = np.flatnonzero(inside > -step)
    radius, theta, sample, inside = radius[keep], theta[keep], sample[keep], inside[keep]
    return WingPixels(
        pixels=half.pixels[near[keep]],
        rho=radius / wing.field[sample],
        phi=clipped(phi[keep]),
        radius=radius,
        along=radius * np.cos(theta),
        across=radius * np.sin(theta),
        sample=sample,
        inside=inside,
        tail=(wing.tail > 0.04)[sample],
        cover=clipped(inside * (1 / step) + 0.5),
        step=step,
        sweep=sweep,
        length=wing.outline.length,
    )
