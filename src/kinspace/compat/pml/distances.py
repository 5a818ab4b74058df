"""How distances are taken there: what triplet, contrastive, margin, lifted and NCA may be given."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LpDistance"]


@dataclass(frozen=True)
class LpDistance:
    """Euclidean distance to the power 1 or 2, by default of embeddings scaled to length 1.

    >>> LpDistance(power=2)
    LpDistance(normalize_embeddings=True, p=2, power=2)
    """

    normalize_embeddings: bool = True
    p: int = 2
    power: int = 1

    def __post_init__(self) -> None:
        if self.p != 2 or self.power not in (1, 2):
            raise ValueError(
                f"LpDistance: expected p=2 and power 1 or 2, got p={self.p}, power={self.power}"
            )
