"""The species: four to a genus, always the same ones in the same order."""

from __future__ import annotations

from functools import cache

from kinspace._core import checks
from kinspace.data.moths.families import FAMILIES, GENERA, binomial, make_genus
from kinspace.data.moths.palette import GROUND_COLORS
from kinspace.data.moths.patterns import fore_pattern, hind_pattern
from kinspace.data.moths.species import MEMBERS, Morph, Species, Traits

__all__ = ["MORPHS", "MOST_SPECIES", "make_species", "species_catalog"]

MORPHS = ("typical", "melanic", "pale", "banded", "rufous")
MOST_SPECIES = MEMBERS * len(GENERA)
# Typical grounds on which a morph would not stand out.
_TOO_LIKE = {
    "melanic": ("charcoal", "umber", "slate"),
    "pale": ("chalk", "cream", "buff"),
    "rufous": ("rust", "chestnut"),
}
_ACCENTS = ("orange", "crimson", "lemon", "azure", "rose", "white")


def _morph(name: str, typical: str, traits: Traits) -> Morph:
    """How a species looks in that form; dark and pale forms of all species resemble each other."""
    if name == "melanic":
        ground = traits.shared_pick("melanic", ("charcoal", "umber"))
        return Morph(name, ground, contrast=0.75, pale_marks=True)
    if name == "pale":
        return Morph(name, traits.shared_pick("pale", ("chalk", "cream")), contrast=0.8)
    if name == "rufous":
        return Morph(name, "rust", contrast=0.85)
    pale_marks = typical in ("charcoal", "slate")
    return Morph(name, typical, contrast=1.0, median=name == "banded", pale_marks=pale_marks)


def _morphs(typical: str, traits: Traits) -> tuple[Morph, ...]:
    """Two to four forms, the typical one first."""
    first = _morph("typical", typical, traits)
    others = [name for name in MORPHS[1:] if typical not in _TOO_LIKE.get(name, ())]
    start, count = traits.level("first morph"), traits.pick("morph count", (1, 2, 3, 2))
    chosen = [others[(start + i) % len(others)] for i in range(count)]
    return (first, *(_morph(name, typical, traits) for name in chosen))


@cache
def make_species(number: int) -> Species:
    """The species of that number.

    >>> make_species(0).name, make_species(0).genus.pattern
    ('Noctarula vespera', 'eyespotted')
    """
    genus_number, member = divmod(number, MEMBERS)
    genus, traits = make_genus(genus_number), Traits(genus_number, member)
    family = FAMILIES[genus.family]
    typical = traits.pick("ground", family.grounds)
    assert typical in GROUND_COLORS
    fore = fore_pattern(traits, genus.pattern)
    hindwing = traits.pick("hindwing", family.hindwings)
    bright = hindwing in _ACCENTS and not family.similar
    return Species(
        number=number,
        name=binomial(genus_number, member),
        genus=genus,
        fore=fore,
        hind=hind_pattern(traits, genus.pattern, fore, similar=family.similar),
        hindwing=hindwing,
        accent=hindwing if bright else traits.pick("accent", _ACCENTS),
        morphs=_morphs(typical, traits),
        similar=family.similar,
    )


def species_catalog(count: int = 120) -> tuple[Species, ...]:
    """The first `count` species.

    >>> [species.name for species in species_catalog(2)]
    ['Noctarula vespera', 'Noctarula rustica']
    """
    checks.integer("species", count, at_least=1)
    if count > MOST_SPECIES:
        raise ValueError(f"species: expected at most {MOST_SPECIES}, got {count}")
    return tuple(make_species(number) for number in range(count))
