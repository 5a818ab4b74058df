"""The attributes of every picture: columns of words, and the same as a 0/1 table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kinspace.data.moths.individual import BACKGROUNDS, POSTURES, WEAR, Individual
from kinspace.data.moths.palette import GROUND_COLORS, HINDWING_COLORS
from kinspace.data.moths.patterns import FRINGES, PATTERNS
from kinspace.data.moths.species import Species
from kinspace.data.moths.species_list import MORPHS

__all__ = ["ATTRIBUTE_NAMES", "VOCABULARY", "attribute_table", "describe"]

# Every column's words, also those a small collection never shows: tables of any two match.
VOCABULARY: dict[str, tuple[str, ...]] = {
    "pattern": tuple(PATTERNS),
    "ground color": GROUND_COLORS,
    "hindwing color": HINDWING_COLORS,
    "wing shape": (
        "broad", "triangular", "rounded", "pointed", "narrow", "falcate", "scalloped", "tailed",
    ),
    "antennae": ("threadlike", "clubbed", "feathered"),
    "eyespots": ("0", "2", "4"),
    "fringe": FRINGES,
    "morph": MORPHS,
    "posture": POSTURES,
    "background": BACKGROUNDS,
    "wear": WEAR,
}  # fmt: skip
ATTRIBUTE_NAMES = tuple(
    f"{column}={word}" for column, words in VOCABULARY.items() for word in words
)


def describe(species: Species, moth: Individual) -> dict[str, str]:
    """The words for one picture, by column.

    Pattern, wing shape, antennae, eyespots and fringe are the species'. The ground color is the
    morph's, and so is the hindwing color where the hindwing continues the forewing. The rest is
    the picture's own. A folded moth hides its hindwings; the words stay true.

    >>> from kinspace.data.moths.species_list import make_species
    >>> from kinspace.data.moths.individual import sample_individual
    >>> species = make_species(0)
    >>> moth = sample_individual(species, np.random.default_rng(0))
    >>> describe(species, moth)["antennae"]
    'feathered'
    """
    genus = species.genus
    return {
        "pattern": genus.pattern,
        "ground color": moth.morph.ground,
        "hindwing color": moth.morph.ground if species.similar else species.hindwing,
        "wing shape": genus.shape,
        "antennae": genus.antennae,
        "eyespots": str(species.eyespots),
        "fringe": species.fore.fringe,
        "morph": moth.morph.name,
        "posture": moth.pose.posture,
        "background": moth.background,
        "wear": moth.wear,
    }


def attribute_table(columns: Mapping[str, Sequence[str] | NDArray[np.str_]]) -> NDArray[np.uint8]:
    """One-hot columns in the order of ATTRIBUTE_NAMES, (pictures, attributes).

    >>> row = {column: [words[0]] for column, words in VOCABULARY.items()}
    >>> int(attribute_table(row).sum()) == len(VOCABULARY)
    True
    """
    tables = [
        np.asarray(columns[column])[:, None] == np.asarray(words)
        for column, words in VOCABULARY.items()
    ]
    return np.concatenate(tables, axis=1).astype(np.uint8)
