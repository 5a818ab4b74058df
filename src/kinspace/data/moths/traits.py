"""How the members of a genus differ: each has another level of every trait."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

__all__ = ["MEMBERS", "Traits"]

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
