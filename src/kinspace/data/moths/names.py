"""Invented Latin binomials: one genus name a genus, one epithet a species."""

from __future__ import annotations

__all__ = ["EPITHETS", "GENERA", "binomial"]

_STEMS = (
    "Noctar", "Vesper", "Umbr", "Lunath", "Cinel", "Sylvar", "Phalor", "Hesper", "Nyctel", "Aurel",
    "Murin", "Tenebr", "Opal", "Crepus", "Astr", "Ferrug", "Ligul", "Marmor", "Selen", "Pallid",
)  # fmt: skip
_ENDINGS = ("ula", "idia", "optera", "essa", "andra", "ina")

# Every genus ends in -a, so every epithet is feminine.
EPITHETS = (
    "vespera", "cinerea", "nebulosa", "rufa", "pallida", "umbrosa", "hibernica", "obscura",
    "lunata", "tristis", "silvatica", "maculosa", "alpina", "fumosa", "gracilis", "montana",
    "argentea", "fallax", "modesta", "nubila", "ornata", "palustris", "quieta", "rustica",
    "sericea", "tenuis", "undata", "velutina", "borealis", "castanea", "decora", "errans",
    "fragilis", "grisea", "hirsuta", "imitata", "lapidea", "mirabilis", "occulta", "pulchra",
)  # fmt: skip

# A stride without a common factor with the stems: neighbors differ in stem and ending.
GENERA = tuple(
    _STEMS[7 * number % len(_STEMS)] + _ENDINGS[(number + 5 * (number // 20)) % len(_ENDINGS)]
    for number in range(60)
)


def binomial(genus: int, member: int) -> str:
    """The name of a genus's member.

    >>> binomial(0, 0), binomial(0, 1)
    ('Noctarula vespera', 'Noctarula rustica')
    """
    return f"{GENERA[genus]} {EPITHETS[(9 * genus + 23 * member) % len(EPITHETS)]}"
