"""What differs from picture to picture of one species: the morph, pose, light, place and wear."""

from __future__ import annotations

import math
from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from kinspace.data.moths.species import Morph, Species

__all__ = ["BACKGROUNDS", "POSTURES", "WEAR", "Individual", "Light", "Pose", "sample_individual"]

POSTURES = ("folded", "half open", "spread")
BACKGROUNDS = ("bark", "leaf", "linen", "wall", "stone", "night")
WEAR = ("fresh", "worn", "tattered")
_OPENNESS = {"folded": (0.0, 0.07), "half open": (0.3, 0.6), "spread": (0.88, 1.04)}


@dataclass(frozen=True)
class Pose:
    """How the moth sits in the picture; angles in radians, places as shares of half the picture."""

    posture: str
    openness: float  # 0 folded, 1 spread
    rotation: float
    zoom: float
    shift: tuple[float, float]
    tilt: tuple[float, float]  # perspective
    roll: float  # turned about its long axis: one side looks narrower
    uneven: float  # one forewing further forward than the other
    antennae: tuple[float, float]  # their angle to the body and how much they bend


@dataclass(frozen=True)
class Light:
    """Where the light comes from, how strong and of what color; what the camera does to it."""

    angle: float
    height: float  # 0 grazing, 1 overhead
    brightness: float
    cast: tuple[float, float, float]
    contrast: float
    vignette: float
    falloff: float
    blur: float
    noise: float


@dataclass(frozen=True)
class Individual:
    """One moth in front of the camera."""

    morph: Morph
    pose: Pose
    light: Light
    background: str
    wear: str
    tint: tuple[float, float, float]
    drift: float  # how far its marks lie from the species' mean


def _pick(rng: np.random.Generator, weights: Sequence[float]) -> int:
    """An index, as often as its weight says; rng.choice takes ten times as long."""
    sums = list(accumulate(weights))
    return bisect(sums, rng.random() * sums[-1])


def _pose(species: Species, rng: np.random.Generator) -> Pose:
    posture = POSTURES[_pick(rng, species.genus.postures)]
    # Most sit head up, more or less; one in seven at any angle.
    rotation = rng.uniform(-math.pi, math.pi) if rng.random() < 1 / 7 else rng.normal(0.0, 0.35)
    cut = rng.random() < 0.1  # a wing leaves the frame
    reach = 0.3 if cut else 0.07
    return Pose(
        posture=posture,
        openness=rng.uniform(*_OPENNESS[posture]),
        rotation=rotation,
        zoom=rng.uniform(0.86, 1.02) * (1.12 if cut else 1.0),
        shift=(rng.uniform(-reach, reach), rng.uniform(-reach, reach)),
        tilt=(rng.uniform(-0.13, 0.13), rng.uniform(-0.13, 0.13)),
        roll=rng.normal(0.0, 0.09),
        uneven=rng.normal(0.0, 0.05),
        antennae=(rng.uniform(0.4, 0.75), rng.uniform(-0.5, 0.7)),
    )


def _light(background: str, rng: np.random.Generator) -> Light:
    warmth, green = rng.normal(0.0, 0.05), rng.normal(0.0, 0.025)
    night = background == "night"
    return Light(
        angle=rng.uniform(-math.pi, math.pi),
        height=rng.uniform(0.25, 0.95),
        brightness=rng.uniform(0.86, 1.12) * (1.1 if night else 1.0),
        cast=(1.0 + warmth, 1.0 + green, 1.0 - warmth),
        contrast=rng.uniform(0.9, 1.12),
        vignette=rng.uniform(0.0, 0.3) + (0.1 if night else 0.0),
        falloff=rng.uniform(0.0, 0.22),
        blur=min(0.6, max(0.0, rng.normal(0.0, 0.3))),
        noise=rng.uniform(0.004, 0.02) * (1.6 if night else 1.0),
    )


def sample_individual(species: Species, rng: np.random.Generator) -> Individual:
    """Draw an individual of the species from the generator.

    >>> from kinspace.data.moths.species_list import make_species
    >>> sample_individual(make_species(0), np.random.default_rng(0)).pose.posture
    'spread'
    """
    morph = species.morphs[_pick(rng, [1.5, 1.0, 1.0, 1.0][: len(species.morphs)])]
    background = BACKGROUNDS[int(rng.integers(len(BACKGROUNDS)))]
    shade = rng.normal(0.0, 0.06)
    red, blue = rng.normal(0.0, 0.025, 2).tolist()
    return Individual(
        morph=morph,
        pose=_pose(species, rng),
        light=_light(background, rng),
        background=background,
        wear=WEAR[_pick(rng, (0.5, 0.35, 0.15))],
        tint=(1 + shade + red, 1 + shade, 1 + shade + blue),
        drift=rng.normal(0.0, 0.008),
    )
