"""Colors with names, as values in 0..1, what turns one into another, and those of one moth."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinspace.data.moths.individual import Individual
from kinspace.data.moths.species import Species

__all__ = [
    "COLORS",
    "GROUND_COLORS",
    "HINDWING_COLORS",
    "Array",
    "Tones",
    "clipped",
    "darker",
    "mixed",
    "rgb",
    "tones_of",
]

Array = NDArray[np.floating[Any]]  # float32 throughout; the stubs see a float make it 64

COLORS = {
    "chalk": (0.90, 0.88, 0.83),
    "cream": (0.88, 0.80, 0.64),
    "buff": (0.77, 0.65, 0.47),
    "ochre": (0.75, 0.54, 0.26),
    "lemon": (0.90, 0.78, 0.36),
    "rose": (0.80, 0.54, 0.52),
    "rust": (0.57, 0.34, 0.22),
    "chestnut": (0.43, 0.25, 0.17),
    "umber": (0.36, 0.28, 0.22),
    "charcoal": (0.21, 0.19, 0.19),
    "ash": (0.63, 0.61, 0.58),
    "slate": (0.42, 0.44, 0.48),
    "olive": (0.49, 0.46, 0.28),
    "moss": (0.40, 0.48, 0.27),
    "jade": (0.66, 0.79, 0.62),
    "crimson": (0.71, 0.15, 0.18),
    "orange": (0.88, 0.47, 0.14),
    "azure": (0.42, 0.53, 0.72),
    "white": (0.97, 0.96, 0.92),
    "black": (0.09, 0.08, 0.09),
}

GROUND_COLORS = (
    "chalk", "cream", "buff", "ochre", "lemon", "rose", "rust", "chestnut", "umber", "charcoal",
    "ash", "slate", "olive", "moss", "jade",
)  # fmt: skip
HINDWING_COLORS = (*GROUND_COLORS, "crimson", "orange", "azure")


def clipped(values: Array, high: float = 1.0) -> Array:
    """The values kept within 0 and `high`: np.clip, at a third of its time on small arrays."""
    return np.minimum(np.maximum(values, 0), high)


@cache
def rgb(name: str) -> Array:
    """The color of that name.

    >>> rgb("ash").tolist()[0] > rgb("charcoal").tolist()[0]
    True
    """
    color = np.array(COLORS[name], np.float32)
    color.flags.writeable = False  # one array for all who ask
    return color


def mixed(first: Array, second: Array, share: float) -> Array:
    """`first` with a share of `second` in it."""
    return first + (second - first) * np.float32(share)


def darker(color: Array, share: float) -> Array:
    """The color moved towards a warm black: pigment darkens red last."""
    return color * (1 - share * np.array([0.92, 1.0, 1.03], np.float32))


Tones = dict[str, Array]  # name -> color (3, 1)


def tones_of(species: Species, moth: Individual) -> tuple[Tones, Tones]:
    """Tones on the forewing and body, and on the hindwing."""
    tint = np.array(moth.tint, np.float32)
    fore = _tones(rgb(moth.morph.ground) * tint, species, moth)
    if species.similar:
        return fore, fore
    return fore, _tones(rgb(species.hindwing) * tint, species, moth)


def _tones(ground: Array, species: Species, moth: Individual) -> Tones:
    contrast = moth.morph.contrast
    dark = darker(mixed(ground, rgb("umber"), 0.35), 0.66 * contrast)
    if moth.morph.pale_marks and float(ground.mean()) < 0.45:
        dark = mixed(ground, rgb("cream"), 0.5 * contrast)
    accent = mixed(rgb(species.accent), ground, 0.12)
    pale = mixed(ground, rgb("white"), 0.55 * contrast)
    median = darker(ground, 0.6) if ground.mean() > 0.45 else mixed(ground, rgb("cream"), 0.6)
    tones = {
        "ground": ground,
        "shade": darker(ground, 0.32),
        "dark": dark,
        "pale": pale,
        "accent": accent,
        "median": median,
        "white": rgb("white"),
        "black": rgb("black"),
        "blue": rgb("azure"),
        "thorax": darker(ground, 0.15),
        "body": mixed(ground, rgb(species.hindwing), 0.4),
        "collar": accent if species.number % 2 else pale,
        "limb": darker(ground, 0.45),
    }
    return {name: color[:, None] for name, color in tones.items()}
