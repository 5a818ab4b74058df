"""What a model answers: neighbors, a verdict, and what became of added pictures."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["UNKNOWN", "Added", "Neighbor", "Verdict"]

UNKNOWN = "unknown"


@dataclass(frozen=True)
class Neighbor:
    """A picture of the gallery. row: its place there. same: of one kind by the threshold, if any.

    label is -1 and class_name "" where the gallery has no classes.
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

    confidence: the share of the votes for the class that came out first, `best`. similarity: the
    cosine to the nearest picture, which decides whether the class is known at all.
    """

    class_name: str
    confidence: float
    best: str
    similarity: float
    neighbors: tuple[Neighbor, ...]


@dataclass(frozen=True)
class Added:
    """What was put under one class name, and the other class nearest to it.

    similarity: the median over the added pictures of their cosine to the nearest picture of that
    class. confusable: it is above the threshold, so that more than half of them would be taken for
    pictures of that class; None where there is no threshold.
    """

    class_name: str
    count: int
    new: bool
    nearest_class: str | None
    similarity: float | None
    confusable: bool | None
