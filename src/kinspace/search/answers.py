"""Results of a model with a gallery: neighbors, the class of a picture, and added pictures."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["UNKNOWN", "Added", "Neighbor", "Verdict"]

UNKNOWN = "unknown"


@dataclass(frozen=True)
class Neighbor:
    """A picture of the gallery. same: similarity reaches the threshold `same`; None without one.

    Without classes in the gallery, label is -1 and class_name "".
    """

    row: int
    id: str
    path: str | None
    class_name: str
    label: int
    similarity: float
    same: bool | None


@dataclass(frozen=True)
class Verdict:
    """The class of a picture, or "unknown".

    confidence: the share of the votes for the first class, `best`. similarity: the cosine to the
    nearest picture, which decides whether the class is known.
    """

    class_name: str
    confidence: float
    best: str
    similarity: float
    neighbors: tuple[Neighbor, ...]


@dataclass(frozen=True)
class Added:
    """The pictures added to one class, and the other class nearest to them.

    similarity: the median over the added pictures of their cosine to the nearest picture of that
    other class. confusable: it reaches the threshold `known`, so that at least half of them would
    count as known by that class; None without a threshold.
    """

    class_name: str
    count: int
    new: bool
    nearest_class: str | None
    similarity: float | None
    confusable: bool | None
