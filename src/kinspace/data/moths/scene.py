"""A moth on its surface, painted from what lies lowest to what lies on top, in some light."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

from kinspace.data.moths.backgrounds import paint_background
from kinspace.data.moths.body import bounds, hang_wings, paint_abdomen, paint_limbs, paint_thorax
from kinspace.data.moths.canvas import Canvas
from kinspace.data.moths.individual import Individual, Light, sample_individual
from kinspace.data.moths.marks import clear_parts, paint_marks
from kinspace.data.moths.palette import Array, Tones, clipped, tones_of
from kinspace.data.moths.species import Band, Pattern, Species
from kinspace.data.moths.textures import clouds, look_up, speckle
from kinspace.data.moths.wings import Pair, WingPixels, locate

__all__ = ["Picture", "draw_moth", "paint_moth"]

_MEDIAN = Band(place=0.53, width=0.16, tone="median", tilt=0.05)
_MEMBRANE = np.array([[0.66], [0.62], [0.55]], np.float32)  # a wing that has lost its scales


@dataclass(frozen=True)
class _Look:
    """What all wings of one individual share while they are painted."""

    canvas: Canvas
    moth: Individual
    lean: tuple[float, float]  # the light's direction in the moth's frame
    offset: float  # of the clouds on the wings


def _light_lean(light: Light, rotation: float) -> tuple[float, float]:
    reach = 1.15 - light.height  # grazing light models the body the most
    angle = light.angle - rotation
    return reach * math.cos(angle), reach * math.sin(angle)


def _lose_scales(color: Array, wing: WingPixels, wear: str, offset: float) -> None:
    if wear == "fresh":
        return
    lost = look_up(clouds(), wing.along * 95 + (offset + 50), wing.across * 95 + offset)
    start = 1.7 if wear == "worn" else 1.1
    color += (_MEMBRANE - color) * clipped(1.5 * (lost - start), 0.65)


def _shade(color: Array, wing: WingPixels, look: _Look) -> None:
    """A folded wing is a steep roof, and every wing is bowed; edges are thin and darker."""
    roof = look.lean[0] * (0.06 + 0.25 * (1 - look.moth.pose.openness))
    light = np.array([1 + roof, 1 - roof], np.float32)[wing.side]
    light -= (0.2 * look.lean[1]) * (wing.phi - 0.45) + 0.1 * clipped(0.25 - wing.rho)
    light *= 1 - 0.16 * clipped(1 - wing.inside * (1 / (2.5 * wing.step)))
    color *= light


def _paint_wings(look: _Look, pair: Pair, pattern: Pattern, tones: Tones) -> WingPixels:
    wing = locate(look.canvas, pair)
    color = paint_marks(wing, pair.field, pattern, tones, look.moth.drift, look.offset)
    _lose_scales(color, wing, look.moth.wear, look.offset)
    _shade(color, wing, look)
    cover = wing.cover
    if pattern.window:
        clear = clear_parts(wing, pattern)
        color += (0.8 - color) * (0.5 * clear)
        cover = cover * (1 - 0.72 * clear)
    look.canvas.paint(wing.pixels, color, cover)
    return wing


def _shade_below(look: _Look, fore: Pair, hindwings: WingPixels) -> None:
    """The forewings' shadow on the hindwings."""
    lower = replace(fore, hinge=(fore.hinge[0], fore.hinge[1] + 0.035))
    shadow = locate(look.canvas, lower, hindwings.pixels)
    depth = 1 - 0.45 * clipped(shadow.inside * (1 / 0.06))
    for channel in look.canvas.color:
        channel[shadow.pixels] *= depth


def paint_moth(species: Species, moth: Individual, size: int, rng: np.random.Generator) -> Canvas:
    """The moth alone, for a picture of that size."""
    genus = species.genus
    fore, hind = hang_wings(genus, moth, rng)
    canvas = Canvas(size, moth.pose, bounds(genus, fore, hind))
    lean = _light_lean(moth.light, moth.pose.rotation)
    look = _Look(canvas, moth, lean, 1024 + rng.uniform(0, 256))
    tones, hind_tones = tones_of(species, moth)
    pattern = species.fore
    if moth.morph.median:
        pattern = replace(pattern, bands=(_MEDIAN, *pattern.bands))  # below all other marks
    hindwings = _paint_wings(look, hind, species.hind, hind_tones)
    if moth.pose.posture != "folded":  # when the hindwings hardly show
        _shade_below(look, fore, hindwings)
    paint_abdomen(canvas, genus.body, tones, lean)
    _paint_wings(look, fore, pattern, tones)
    paint_limbs(canvas, genus, moth.pose, tones["limb"])
    paint_thorax(canvas, genus.body, tones, lean)
    return canvas


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
