"""Contrastive loss on squared distances.

    L = sum_{same pairs} D + sum_{different pairs} max(0, margin - D),   D = ||x_i - x_j||^2

over unordered pairs. `reduction`: "sum" as printed, "mean" over all pairs, "mean_each" the mean
over the same pairs plus the mean over the different ones. The three are different methods, not
scales of one: with "sum" and "mean" the many different pairs outweigh the same ones.

DML-DA paper Eq. 2, after Hadsell et al. 2006 (who use max(0, margin - distance)^2).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from kinspace import checks
from kinspace.distances import distances_with_pull
from kinspace.numerics import full_precision
from kinspace.pairs import class_table
from kinspace.slopes import with_slopes

__all__ = ["Contrastive", "contrastive_loss"]

REDUCTIONS = ("mean_each", "mean", "sum")


@full_precision
def contrastive_loss(
    embeddings: Tensor, labels: Tensor, *, margin: float = 1.0, reduction: str = "mean_each"
) -> Tensor:
    """Contrastive loss (module docstring).

    One same pair at squared distance 1, different pairs at 0.25 and 2.25:

    >>> x = torch.tensor([[0.0], [1.0], [-0.5]])
    >>> contrastive_loss(x, torch.tensor([0, 0, 1]), reduction="sum")
    tensor(1.7500)
    """
    labels = checks.with_labels(embeddings, labels, read=False)
    checks.finite("margin", margin)
    checks.choice("reduction", reduction, REDUCTIONS)
    value, slope = _value_and_slope(embeddings, labels, margin, reduction)
    return with_slopes(value, (embeddings, slope))


@torch.no_grad()
def _value_and_slope(
    embeddings: Tensor, labels: Tensor, margin: float, reduction: str
) -> tuple[Tensor, Callable[[], Tensor]]:
    squares, pull_back = distances_with_pull(embeddings)
    index, positive = class_table(labels)
    same = positive.sum().to(squares.dtype)  # ordered pairs: each unordered one twice
    different = len(labels) * (len(labels) - 1) - same
    if reduction == "mean_each":
        pull, push = 1 / same.clamp(min=1), 1 / different.clamp(min=1)
    else:
        pull = push = torch.full_like(same, 0.5) / (
            1 if reduction == "sum" else max(1, len(labels) * (len(labels) - 1) / 2)
        )
    # The weight of each distance is a constant: no table for a hinge.
    active = (squares < margin).scatter_(1, index, False)
    weights = active * -push
    weights.scatter_add_(1, index, positive * pull)
    value = squares.mul_(weights).sum() + margin * push * active.sum()
    return value, lambda: pull_back(weights)


class Contrastive(nn.Module):
    """`contrastive_loss` as a module.

    >>> Contrastive()
    Contrastive(margin=1.0, reduction='mean_each')
    """

    def __init__(self, *, margin: float = 1.0, reduction: str = "mean_each") -> None:
        super().__init__()
        self.margin = checks.finite("margin", margin)
        self.reduction = checks.choice("reduction", reduction, REDUCTIONS)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return contrastive_loss(embeddings, labels, margin=self.margin, reduction=self.reduction)

    def extra_repr(self) -> str:
        return f"margin={self.margin}, reduction={self.reduction!r}"
