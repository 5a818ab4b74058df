"""The colors behind the tones' names for one individual."""

from __future__ import annotations

import numpy as np

from kinspace.data.moths.individual import Individual
from kinspace.data.moths.palette import Array, darker, mixed, rgb
from kinspace.data.moths.species import Species

__all__ = ["Tones", "tones_of"]

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
