"""Contrastive loss on squared distances.

    L = sum_{same pairs} D + sum_{different pairs} max(0, margin - D),   D = ||x_i - x_j||^2

over unordered pairs. `reduction`: "sum" as printed, "mean" over all pairs, "mean_each" the mean
over the same pairs plus the mean over the different ones. The three are different methods, not
scales of one: with "sum" and "mean" the many different pairs outweigh the same ones.

DML-DA paper Eq. 2, after Hadsell et al. 2006 (who use max(0, margin - distance)^2).
"""

from __future__ import annotations

from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.checks import options_repr
from kinspace._core.class_index import ClassIndex
from kinspace._core.tensor_ops import full_precision
from kinspace._core.vectors import squared_distances

__all__ = ["Contrastive", "contrastive_loss"]

REDUCTIONS = ("mean_each", "mean", "sum")


@full_precision
def contrastive_loss(
    embeddings: Tensor, labels: Tensor, *, margin: float = 1.0, reduction: str = "mean_each"
) -> Tensor:
    """Contrastive loss (module docstring).

    One same pair at squared distance 1, different pairs at 0.25 and 2.25:

    >>> import torch
    >>> x = torch.tensor([[0.0], [1.0], [-0.5]])
    >>> contrastive_loss(x, torch.tensor([0, 0, 1]), reduction="sum")
    tensor(1.7500)
    """
    labels = checks.labels(embeddings, labels)
    checks.number("margin", margin)
    checks.choice("reduction", reduction, REDUCTIONS)
    squares = squared_distances(embeddings)  # (batch, batch)
    index = ClassIndex(labels)
    members, positive = index.positives  # (batch, largest class); each pair appears twice
    pull = squares.gather(1, members).masked_fill(~positive, 0.0).sum()
    push = (margin - squares).relu().masked_fill(index.same, 0.0).sum()
    same = positive.sum()
    different = len(labels) * (len(labels) - 1) - same
    if reduction == "mean_each":
        return pull / same.clamp(min=1) + push / different.clamp(min=1)
    total = (pull + push) / 2
    return total if reduction == "sum" else total / max(1, len(labels) * (len(labels) - 1) / 2)


class Contrastive(nn.Module):
    """`contrastive_loss` as a module.

    >>> Contrastive()
    Contrastive(margin=1.0, reduction='mean_each')
    """

    def __init__(self, *, margin: float = 1.0, reduction: str = "mean_each") -> None:
        super().__init__()
        self.margin = checks.number("margin", margin)
        self.reduction = checks.choice("reduction", reduction, REDUCTIONS)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return contrastive_loss(embeddings, labels, margin=self.margin, reduction=self.reduction)

    def extra_repr(self) -> str:
        return options_repr(self, "margin", "reduction")
