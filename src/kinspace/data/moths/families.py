"""The fifteen families that genera are drawn from, and the invented names of their species."""

from __future__ import annotations

from dataclasses import dataclass

from kinspace.data.moths.species import Body, Genus, Outline, Traits

__all__ = ["EPITHETS", "FAMILIES", "GENERA", "Family", "binomial", "make_genus"]

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


Range = tuple[float, float]


@dataclass(frozen=True)
class Family:
    """What a genus of this family may look like; `Range`s are low and high values."""

    shape: str
    pattern: str
    antennae: tuple[str, ...]
    postures: tuple[float, float, float]  # how often folded, half open, spread
    sweep: Range  # forewing
    corner: Range
    bulge: Range
    hind_length: Range
    hind_sweep: Range
    body: Range
    abdomen: Range
    grounds: tuple[str, ...]
    hindwings: tuple[str, ...]
    hook: Range = (0.0, 0.0)
    scallop: Range = (0.0, 0.0)
    tail: Range = (0.0, 0.0)
    rear: Range = (30.0, 54.0)
    fur: Range = (0.35, 0.6)
    similar: bool = False


FAMILIES = {
    "emperor": Family(
        "broad", "eyespotted", ("feathered",), (0.0, 0.2, 0.8),
        (60, 68), (0.66, 0.76), (0.02, 0.09), (0.80, 0.88), (92, 102), (0.12, 0.14), (0.40, 0.46),
        ("buff", "rust", "umber", "ash", "ochre"), ("rust", "ochre", "rose", "umber"),
        scallop=(0.0, 0.02), fur=(0.6, 0.8), similar=True,
    ),
    "owlet": Family(
        "triangular", "banded", ("threadlike",), (0.6, 0.3, 0.1),
        (46, 54), (0.66, 0.74), (0.08, 0.14), (0.60, 0.66), (84, 92), (0.13, 0.15), (0.46, 0.54),
        ("umber", "ash", "buff", "chestnut", "olive"), ("ash", "buff", "umber", "cream"),
    ),
    "tiger": Family(
        "rounded", "blotched", ("threadlike", "feathered"), (0.35, 0.35, 0.3),
        (50, 58), (0.68, 0.76), (0.10, 0.15), (0.64, 0.70), (86, 94), (0.14, 0.16), (0.46, 0.54),
        ("cream", "chestnut", "charcoal", "chalk"), ("crimson", "orange", "lemon", "rose"),
        fur=(0.6, 0.8),
    ),
    "carpet": Family(
        "broad", "banded", ("threadlike",), (0.0, 0.15, 0.85),
        (56, 64), (0.68, 0.76), (0.08, 0.14), (0.78, 0.86), (88, 98), (0.07, 0.09), (0.40, 0.48),
        ("chalk", "ash", "buff", "slate", "moss"), ("ash", "cream", "buff", "slate"),
        scallop=(0.0, 0.025), similar=True, fur=(0.2, 0.35),
    ),
    "hawk": Family(
        "pointed", "striped", ("threadlike", "clubbed"), (0.25, 0.55, 0.2),
        (40, 47), (0.46, 0.56), (0.0, 0.04), (0.54, 0.60), (70, 80), (0.15, 0.17), (0.62, 0.70),
        ("olive", "buff", "slate", "rust", "moss"), ("rose", "lemon", "orange", "slate"),
        rear=(30.0, 38.0), fur=(0.2, 0.35),
    ),
    "moon": Family(
        "tailed", "eyespotted", ("feathered",), (0.0, 0.1, 0.9),
        (52, 60), (0.56, 0.64), (0.0, 0.06), (0.70, 0.78), (88, 96), (0.10, 0.12), (0.34, 0.40),
        ("jade", "lemon", "cream", "rose"), ("jade", "lemon", "cream", "rose"),
        tail=(0.30, 0.46), hook=(0.0, 0.05), similar=True, fur=(0.5, 0.7),
    ),
    "underwing": Family(
        "triangular", "marbled", ("threadlike",), (0.15, 0.5, 0.35),
        (50, 56), (0.68, 0.76), (0.08, 0.13), (0.76, 0.84), (90, 98), (0.13, 0.15), (0.48, 0.56),
        ("ash", "umber", "slate", "olive"), ("crimson", "orange", "lemon", "azure"),
        scallop=(0.01, 0.03),
    ),
    "lappet": Family(
        "scalloped", "plain", ("feathered",), (0.6, 0.25, 0.15),
        (50, 57), (0.72, 0.80), (0.08, 0.14), (0.62, 0.68), (86, 94), (0.15, 0.17), (0.48, 0.56),
        ("rust", "chestnut", "ochre", "buff"), ("rust", "ochre", "umber", "buff"),
        scallop=(0.035, 0.06), fur=(0.7, 0.9),
    ),
    "burnet": Family(
        "narrow", "blotched", ("clubbed",), (0.35, 0.35, 0.3),
        (36, 42), (0.78, 0.86), (0.10, 0.15), (0.58, 0.64), (66, 74), (0.11, 0.13), (0.50, 0.58),
        ("charcoal", "slate", "moss", "umber"), ("crimson", "orange", "azure", "lemon"),
        fur=(0.25, 0.4),
    ),
    "ermine": Family(
        "rounded", "speckled", ("threadlike", "feathered"), (0.5, 0.3, 0.2),
        (47, 54), (0.70, 0.78), (0.10, 0.15), (0.62, 0.68), (84, 92), (0.13, 0.15), (0.44, 0.52),
        ("chalk", "cream", "lemon", "ash"), ("cream", "lemon", "ash", "buff"),
        fur=(0.7, 0.9),
    ),
    "hooktip": Family(
        "falcate", "striped", ("feathered", "threadlike"), (0.05, 0.25, 0.7),
        (56, 62), (0.62, 0.70), (0.02, 0.07), (0.76, 0.84), (88, 96), (0.08, 0.10), (0.38, 0.46),
        ("ochre", "buff", "cream", "rust", "ash"), ("cream", "ochre", "buff", "ash"),
        hook=(0.12, 0.18), similar=True,
    ),
    "emerald": Family(
        "broad", "plain", ("feathered", "threadlike"), (0.0, 0.1, 0.9),
        (56, 64), (0.66, 0.74), (0.08, 0.13), (0.78, 0.86), (88, 98), (0.07, 0.09), (0.38, 0.46),
        ("jade", "moss", "cream", "rose", "olive"), ("jade", "cream", "rose", "ash"),
        scallop=(0.0, 0.03), similar=True, fur=(0.2, 0.35),
    ),
    "prominent": Family(
        "narrow", "striped", ("feathered",), (0.65, 0.25, 0.1),
        (38, 45), (0.70, 0.78), (0.08, 0.14), (0.56, 0.62), (78, 86), (0.14, 0.16), (0.54, 0.62),
        ("ash", "buff", "umber", "chalk", "rust"), ("cream", "ash", "buff", "umber"),
        scallop=(0.01, 0.025), fur=(0.7, 0.9),
    ),
    "clearwing": Family(
        "narrow", "windowed", ("clubbed", "feathered"), (0.1, 0.4, 0.5),
        (34, 40), (0.70, 0.78), (0.06, 0.10), (0.58, 0.64), (70, 80), (0.11, 0.13), (0.58, 0.66),
        ("umber", "charcoal", "rust", "olive"), ("umber", "rust", "ochre", "slate"),
        fur=(0.3, 0.5), similar=True,
    ),
    "gem": Family(
        "pointed", "marbled", ("threadlike",), (0.5, 0.3, 0.2),
        (44, 50), (0.62, 0.70), (0.04, 0.09), (0.58, 0.64), (80, 88), (0.13, 0.15), (0.46, 0.54),
        ("chestnut", "moss", "slate", "buff", "rose"), ("buff", "ash", "ochre", "umber"),
        hook=(0.02, 0.07), scallop=(0.0, 0.02), fur=(0.5, 0.7),
    ),
}  # fmt: skip


def make_genus(number: int) -> Genus:
    """The genus of that number; the families come in turn.

    >>> make_genus(0).family, make_genus(15).family
    ('emperor', 'emperor')
    """
    name, family = list(FAMILIES.items())[number % len(FAMILIES)]
    traits = Traits(number, 0)
    fore, hind = _outlines(family, traits)
    return Genus(
        number=number,
        name=GENERA[number],
        family=name,
        shape=family.shape,
        pattern=family.pattern,
        antennae=traits.shared_pick("antennae", family.antennae),
        postures=family.postures,
        fore=fore,
        hind=hind,
        body=_body(family, traits),
        rear=traits.shared("rear", *family.rear),
    )


def _outlines(family: Family, traits: Traits) -> tuple[Outline, Outline]:
    draw = traits.shared
    scallop = draw("scallop", *family.scallop)
    fore = Outline(
        length=draw("fore length", 0.94, 1.0),
        sweep=draw("fore sweep", *family.sweep),
        corner=draw("fore corner", *family.corner),
        bulge=draw("fore bulge", *family.bulge),
        hook=draw("fore hook", *family.hook),
        scallop=scallop,
        arch=draw("fore arch", 0.03, 0.09),
    )
    hind = Outline(
        length=draw("hind length", *family.hind_length),
        sweep=draw("hind sweep", *family.hind_sweep),
        corner=draw("hind corner", 0.96, 1.1),
        bulge=draw("hind bulge", 0.08, 0.16),
        scallop=1.4 * scallop,
        arch=draw("hind arch", 0.0, 0.05),
        tail=draw("tail", *family.tail),
        tail_place=draw("tail place", 0.58, 0.68),
    )
    return fore, hind


def _body(family: Family, traits: Traits) -> Body:
    return Body(
        width=traits.shared("body width", *family.body),
        length=traits.shared("abdomen length", *family.abdomen),
        girth=traits.shared("abdomen width", 0.66, 0.8),
        fur=traits.shared("fur", *family.fur),
        rings=traits.shared_pick("abdomen rings", ("shade", "dark", "pale", "accent")),
    )
