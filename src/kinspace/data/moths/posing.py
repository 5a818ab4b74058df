"""Hanging the wings on the body in the moth's pose, with the pieces they have lost."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from kinspace.data.moths.body import head_place
from kinspace.data.moths.individual import Individual
from kinspace.data.moths.palette import Array, clipped
from kinspace.data.moths.species import Genus
from kinspace.data.moths.wings import SAMPLES, Hung, edge_tables

__all__ = ["bounds", "hang_wings"]

_FORE_HINGE = (0.06, -0.27)
_HIND_HINGE = (0.05, -0.18)
_tables = lru_cache(maxsize=512)(edge_tables)


def _worn(edge: Array, wear: str, rng: np.random.Generator) -> Array:
    """The outer edge with pieces torn out."""
    bites = {"fresh": 0, "worn": 2, "tattered": 5}[wear]
    f = np.linspace(0, 1, SAMPLES, dtype=np.float32)
    for _ in range(int(rng.integers(bites // 2, bites + 1))):
        middle, width = rng.uniform(0.05, 0.95), rng.uniform(0.01, 0.05)
        depth = rng.uniform(0.03, 0.16)
        edge = edge * (1 - depth * clipped(1.4 - np.abs(f - middle) / width))
    return edge


def hang_wings(
    genus: Genus, moth: Individual, side: int, rng: np.random.Generator
) -> tuple[Hung, Hung]:
    """The fore and the hind wing of one side (1 right, -1 left), at the pose's opening."""
    pose = moth.pose
    fore_sweep, hind_sweep = genus.fore.sweep, genus.hind.sweep
    # Degrees behind sideways at which the leading edges lie when folded and when spread.
    folded = 104 + math.degrees(genus.fore.arch) - fore_sweep
    spread = genus.rear - fore_sweep
    tucked, out = folded + 5, 98 - hind_sweep  # below the forewing, or beside the abdomen
    uneven = side * math.degrees(pose.uneven)
    fore_angle = folded + (spread - folded) * pose.openness + uneven * (0.3 + pose.openness)
    hind_angle = tucked + (out - tucked) * min(1.0, 1.3 * pose.openness) + 0.5 * uneven
    narrow = (0.86 + 0.14 * pose.openness) * (1 + side * pose.roll)
    wings = []
    for outline, hinge, angle in (
        (genus.fore, _FORE_HINGE, fore_angle),
        (genus.hind, _HIND_HINGE, hind_angle),
    ):
        field, tail = _tables(outline)
        edge = _worn(field + tail, moth.wear, rng)
        wings.append(Hung(outline, edge, field, tail, hinge, math.radians(angle), narrow))
    return wings[0], wings[1]


def bounds(genus: Genus, fore: Hung, hind: Hung) -> tuple[float, float]:
    """Where the moth's middle lies along the body, and its radius."""
    xs, ys = [0.45], [head_place(genus.body) - 0.2, genus.body.length + 0.02]
    for wing in (fore, hind):
        angles = wing.angle + np.linspace(0, 1, 17) * math.radians(wing.outline.sweep)
        edge = wing.edge[:: (SAMPLES - 1) // 16][:17]
        xs += (wing.hinge[0] + wing.narrow * edge * np.cos(angles)).tolist()
        ys += (wing.hinge[1] + edge * np.sin(angles)).tolist()
    middle = (min(ys) + max(ys)) / 2
    return middle, max(*xs, 0.92 * (max(ys) - middle))
