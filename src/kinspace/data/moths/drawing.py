"""From a species and a random generator to a picture and what it shows."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from kinspace.data.moths.backgrounds import paint_background
from kinspace.data.moths.individual import Individual, Light, sample_individual
from kinspace.data.moths.painting import paint_moth
from kinspace.data.moths.palette import Array
from kinspace.data.moths.species import Species
from kinspace.data.moths.textures import speckle

__all__ = ["Picture", "draw_moth"]


@dataclass(frozen=True)
class Picture:
    """A picture (size, size, 3) and the individual it shows."""

    image: NDArray[np.uint8]
    individual: Individual


def _shadow(cover: Array, light: Light) -> Array:
    """How dark the moth's shadow is, (size, size): away from the light, longer when it is low."""
    size = len(cover)
    reach = (0.03 + 0.06 * (1 - light.height)) * size
    # At half the size: a quarter of the time, invisible under the blur.
    mask = Image.fromarray((cover * 255).astype(np.uint8)).reduce(2)
    soft = mask.filter(ImageFilter.GaussianBlur(0.01 * size + 0.15 * reach))
    right, down = reach * math.cos(light.angle) / 2, reach * math.sin(light.angle) / 2
    away = (0.5, 0, right, 0, 0.5, down)
    moved = soft.transform((size, size), Image.Transform.AFFINE, away, Image.Resampling.BILINEAR)
    return np.asarray(moved, np.float32) * np.float32(1 / 255)


def _develop(color: Array, light: Light, rng: np.random.Generator) -> NDArray[np.uint8]:
    """Light and lens: cast, falloff, vignette, contrast, blur and noise."""
    size = len(color)
    ticks = (np.arange(size, dtype=np.float32) + 0.5) * (2 / size) - 1
    across, down = ticks[None, :], ticks[:, None]
    fall = 1 + light.falloff * (math.cos(light.angle) * across + math.sin(light.angle) * down)
    lens = 1 - light.vignette * 0.5 * (across * across + down * down)
    gain = np.array(light.cast, np.float32) * (light.brightness * light.contrast)
    color = color * (fall * lens)[..., None] * gain + 0.45 * (1 - light.contrast)
    color += light.noise * speckle(rng, color.size).reshape(color.shape)
    image = Image.fromarray((np.clip(color, 0, 1) * 255 + 0.5).astype(np.uint8))
    if light.blur > 0.2:
        image = image.filter(ImageFilter.GaussianBlur(light.blur * size / 96))
    return np.array(image)


def draw_moth(species: Species, rng: np.random.Generator, *, size: int = 96) -> Picture:
    """Draw one individual of the species.

    >>> from kinspace.data.moths.species_list import make_species
    >>> picture = draw_moth(make_species(0), np.random.default_rng(0))
    >>> picture.image.shape, picture.individual.background
    ((96, 96, 3), 'wall')
    """
    moth = sample_individual(species, rng)
    surface = paint_background(moth.background, size, rng)
    color, cover = paint_moth(species, moth, size, rng).layers()
    strength = 0.35 + 0.3 * (1 - moth.light.height)
    surface *= 1 - strength * _shadow(cover, moth.light)[..., None]
    color = color + surface * (1 - cover[..., None])
    return Picture(_develop(color, moth.light, rng), moth)
