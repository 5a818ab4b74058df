"""How distances are taken there: what losses and miners may be given as `distance=`.

Each names a distance of `kinspace.losses.DISTANCES`, and is called for the table of a batch, as
there: `distance(embeddings)`, `distance(embeddings, others)`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from kinspace._core.distances import DISTANCES
from kinspace._core.tensor_ops import upcast_half
from kinspace._core.vectors import unit

__all__ = ["CosineSimilarity", "Distance", "DotProductSimilarity", "LpDistance"]


@dataclass(frozen=True)
class LpDistance:
    """Distance of the norm p to a power, by default of embeddings scaled to length 1.

    p=2 with power 1 or 2; p=1 of embeddings as they are.

    >>> import torch
    >>> LpDistance(power=2), LpDistance(power=2)(torch.eye(2))
    (LpDistance(normalize_embeddings=True, p=2, power=2), tensor([[0., 2.],
            [2., 0.]]))
    """

    normalize_embeddings: bool = True
    p: int = 2
    power: int = 1
    is_inverted: ClassVar[bool] = False

    def __post_init__(self) -> None:
        manhattan = self.p == 1 and self.power == 1 and not self.normalize_embeddings
        if not manhattan and (self.p != 2 or self.power not in (1, 2)):
            raise ValueError(
                "LpDistance: expected p=2 and power 1 or 2, or p=1 and power 1 without "
                f"normalize_embeddings, got p={self.p}, power={self.power}"
            )

    @property
    def word(self) -> str:
        """The distance here."""
        if self.p == 1:
            return "manhattan"
        return "squared_euclidean" if self.power == 2 else "euclidean"

    def __call__(self, embeddings: Tensor, others: Tensor | None = None) -> Tensor:
        return _table(self, embeddings, others)


@dataclass(frozen=True)
class CosineSimilarity:
    """The cosine; here the distance 1 less the cosine."""

    normalize_embeddings: ClassVar[bool] = True
    is_inverted: ClassVar[bool] = True
    word: ClassVar[str] = "cosine"

    def __call__(self, embeddings: Tensor, others: Tensor | None = None) -> Tensor:
        return 1 - _table(self, embeddings, others)


@dataclass(frozen=True)
class DotProductSimilarity:
    """The inner product, by default of embeddings scaled to length 1; here its negative."""

    normalize_embeddings: bool = True
    is_inverted: ClassVar[bool] = True
    word: ClassVar[str] = "dot"

    def __call__(self, embeddings: Tensor, others: Tensor | None = None) -> Tensor:
        return -_table(self, embeddings, others)


Distance = LpDistance | CosineSimilarity | DotProductSimilarity


def _table(distance: Distance, embeddings: Tensor, others: Tensor | None) -> Tensor:
    x, y = embeddings, embeddings if others is None else others
    if distance.normalize_embeddings:
        x, y = unit(upcast_half(x)), unit(upcast_half(y))
    return DISTANCES[distance.word](x, None if others is None else y)
