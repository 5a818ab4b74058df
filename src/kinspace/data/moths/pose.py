"""The wings on the body in the pose of the moth, without the pieces they have lost."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from kinspace.data.moths.body import head_place
from kinspace.data.moths.individual import Individual
from kinspace.data.moths.palette import Array, clipped
from kinspace.data.moths.species import Genus, Outline
from kinspace.data.moths.wings import SAMPLES, Pair, edge_tables

__all__ = ["bounds", "hang_wings"]

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
    """The fore and the hind wings at the pose's opening."""
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
