"""Painting a moth onto its canvas, from what lies lowest to what lies on top."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from kinspace.data.moths import body
from kinspace.data.moths.canvas import Canvas
from kinspace.data.moths.individual import Individual, Light
from kinspace.data.moths.marks import clear_parts, paint_marks
from kinspace.data.moths.palette import Array, clipped
from kinspace.data.moths.pose import bounds, hang_wings
from kinspace.data.moths.species import Band, Pattern, Species
from kinspace.data.moths.textures import clouds, look_up
from kinspace.data.moths.tones import Tones, tones_of
from kinspace.data.moths.wings import Pair, WingPixels, locate

__all__ = ["paint_moth"]

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
    body.paint_abdomen(canvas, genus.body, tones, lean)
    _paint_wings(look, fore, pattern, tones)
    body.paint_limbs(canvas, genus, moth.pose, tones["limb"])
    body.paint_thorax(canvas, genus.body, tones, lean)
    return canvas
