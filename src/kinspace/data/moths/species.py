"""What a species is: the body plan of its genus, its marks, morphs and traits."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

__all__ = [
    "MEMBERS",
    "Band",
    "Body",
    "Eyespot",
    "Genus",
    "Morph",
    "Outline",
    "Pattern",
    "Species",
    "Spot",
    "Traits",
]


@dataclass(frozen=True)
class Outline:
    """A wing's edge, by polar coordinates about its hinge; angles in degrees, lengths in spans.

    The leading edge lies at angle 0, the trailing edge at `sweep`; the outer edge runs from the
    apex (at `length`) to the rear corner (at `length * corner`).
    """

    length: float
    sweep: float
    corner: float
    bulge: float = 0.1  # the outer edge's convexity
    hook: float = 0.0  # how far it is hollowed out below the apex
    scallop: float = 0.0
    arch: float = 0.05  # the leading edge's curvature, in radians
    tail: float = 0.0
    tail_place: float = 0.62  # as a share of the sweep


@dataclass(frozen=True)
class Band:
    """A line across the wing: `place` 0 is the hinge, 1 the outer edge."""

    place: float
    width: float
    tone: str = "dark"
    wave: str = "straight"
    amplitude: float = 0.0
    waves: float = 3.0
    tilt: float = 0.0
    strength: float = 0.85


@dataclass(frozen=True)
class Eyespot:
    """Rings about a point: `along` 0..1 from hinge to edge, `across` 0..1 from front to rear."""

    along: float
    across: float
    size: float
    rings: tuple[str, ...]  # tones from the rim inwards


@dataclass(frozen=True)
class Spot:
    """A single mark of a named shape, placed like an eyespot."""

    along: float
    across: float
    size: float
    shape: str = "dot"
    tone: str = "dark"
    aspect: float = 1.0


@dataclass(frozen=True)
class Pattern:
    """All marks on one wing, painted in this order."""

    bands: tuple[Band, ...] = ()
    streaks: tuple[tuple[float, float, float], ...] = ()  # (across, from, to)
    streak_tone: str = "dark"
    speckles: float = 0.0  # share of the wing they cover
    spots: tuple[Spot, ...] = ()
    eyespots: tuple[Eyespot, ...] = ()
    veins: float = 0.0
    vein_tone: str = "shade"
    window: float = 0.0  # how far out a clear membrane reaches
    edge: float = 0.0  # width of a dark border
    edge_spots: str = ""  # tone of the row of dots along the outer edge
    costal_spots: int = 0
    fringe: str = "plain"
    mottle: float = 0.3


@dataclass(frozen=True)
class Body:
    """Thorax width, abdomen length and width (in spans), its rings, and how furry it is."""

    width: float
    length: float
    girth: float
    fur: float
    rings: str = "shade"  # tone


@dataclass(frozen=True)
class Genus:
    """A body plan: what its species share."""

    number: int
    name: str
    family: str
    shape: str
    pattern: str
    antennae: str
    postures: tuple[float, float, float]  # how often folded, half open, spread
    fore: Outline
    hind: Outline
    body: Body
    rear: float  # degrees its forewings' trailing edge points behind sideways when spread


@dataclass(frozen=True)
class Morph:
    """One of the looks a species comes in; `median`: a broad band fills the forewing's middle."""

    name: str
    ground: str
    contrast: float
    median: bool = False
    pale_marks: bool = False  # the dark marks are pale: on a dark ground they would not show


@dataclass(frozen=True)
class Species:
    """A class of the data set: a genus's member with marks, colors and morphs of its own."""

    number: int
    name: str
    genus: Genus
    fore: Pattern
    hind: Pattern
    hindwing: str
    accent: str
    morphs: tuple[Morph, ...]
    similar: bool  # the hindwing continues the forewing's ground and bands

    @property
    def eyespots(self) -> int:
        """How many eyespots the four wings carry."""
        return 2 * (len(self.fore.eyespots) + len(self.hind.eyespots))


MEMBERS = 4  # species in a genus
_Choice = TypeVar("_Choice")


class Traits:
    """Values for one member of a genus.

    A trait has as many levels as the genus has members, assigned in an order of its own, so
    that any two members differ visibly in it. What the genus shares comes from `shared`.

    >>> [Traits(3, member).between("width", 0.0, 0.3, jitter=0.0) for member in range(4)]
    [0.2, 0.3, 0.0, 0.1]
    """

    def __init__(self, genus: int, member: int) -> None:
        self.genus, self.member = genus, member

    def _values(self, trait: str, count: int) -> list[float]:
        # Seeded by the trait's name: a new trait leaves the values of all others as they were.
        # Python's generator, as it is the quicker one to seed; only random() is the same in
        # all its versions.
        stream = random.Random(f"moth {self.genus} {trait}")
        return [stream.random() for _ in range(count)]

    def level(self, trait: str) -> int:
        """0 to MEMBERS - 1, each taken by one member."""
        keys = self._values(trait, MEMBERS)
        return sorted(keys).index(keys[self.member])

    def between(self, trait: str, low: float, high: float, *, jitter: float = 0.15) -> float:
        """A value of this member; jitter is a share of the distance between two levels."""
        step = (high - low) / (MEMBERS - 1)
        shift = jitter * (2 * self._values(f"{trait} jitter", MEMBERS)[self.member] - 1)
        return round(low + step * (self.level(trait) + shift), 6)

    def pick(self, trait: str, options: Sequence[_Choice]) -> _Choice:
        """One of the options; where there are enough, the members take different ones."""
        start = int(self._values(f"{trait} start", 1)[0] * len(options))
        return options[(start + self.level(trait)) % len(options)]

    def shared(self, trait: str, low: float, high: float) -> float:
        """A value that all members of the genus have in common."""
        return round(low + (high - low) * self._values(trait, 1)[0], 6)

    def shared_pick(self, trait: str, options: Sequence[_Choice]) -> _Choice:
        """An option that all members of the genus have in common."""
        return options[int(self._values(trait, 1)[0] * len(options))]
