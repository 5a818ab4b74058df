"""Contrastive loss on squared distances.

    L = sum_{same pairs} D + sum_{different pairs} max(0, margin - D),   D = ||x_i - x_j||^2

over unordered pairs, or over given `pairs`, or all pairs of a sample and one of a reference.
`reduction`: "sum" as printed, "mean" over all pairs, "mean_each" the mean
over the same pairs plus the mean over the different ones. The three are different methods, not
scales of one: with "sum" and "mean" the many different pairs outweigh the same ones.

DML-DA paper Eq. 2, after Hadsell et al. 2006 (who use max(0, margin - distance)^2).
"""

from __future__ import annotations

from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.checks import options_repr
from kinspace._core.class_index import ClassIndex
from kinspace._core.references import chosen_pairs, compared, given_pairs
from kinspace._core.tensor_ops import full_precision
from kinspace._core.vectors import paired_distances, squared_distances

__all__ = ["Contrastive", "contrastive_loss"]

REDUCTIONS = ("mean_each", "mean", "sum")


@full_precision
def contrastive_loss(  # noqa: PLR0913 (an option each)
    embeddings: Tensor,
    labels: Tensor,
    *,
    margin: float = 1.0,
    reduction: str = "mean_each",
    pairs: Tensor | None = None,
    triplets: Tensor | None = None,
    reference: Tensor | None = None,
    reference_labels: Tensor | None = None,
    includes_batch: bool = False,
) -> Tensor:
    """Contrastive loss (module docstring).

    One same pair at squared distance 1, different pairs at 0.25 and 2.25:

    >>> import torch
    >>> x = torch.tensor([[0.0], [1.0], [-0.5]])
    >>> contrastive_loss(x, torch.tensor([0, 0, 1]), reduction="sum")
    tensor(1.7500)
    """
    reference, index = compared(embeddings, labels, reference, reference_labels, includes_batch)
    checks.number("margin", margin)
    checks.choice("reduction", reduction, REDUCTIONS)
    pairs = given_pairs(pairs, triplets, index)
    if pairs is not None:
        return _loss_of_pairs(embeddings, reference, index, pairs, margin, reduction)
    squares = squared_distances(embeddings, reference)  # (batch, batch)
    members, positive = index.positives  # (batch, largest class)
    pull = squares.gather(1, members).masked_fill(~positive, 0.0).sum()
    push = (margin - squares).relu().masked_fill(index.same, 0.0).sum()
    same = positive.sum()
    different = index.comparisons - same
    if reduction == "mean_each":
        return pull / same.clamp(min=1) + push / different.clamp(min=1)
    twice = 2 if reference is None else 1  # how often each pair appears
    total = (pull + push) / twice
    return total if reduction == "sum" else total / max(1, index.comparisons / twice)


def _loss_of_pairs(
    x: Tensor,
    reference: Tensor | None,
    index: ClassIndex,
    pairs: Tensor,
    margin: float,
    reduction: str,
) -> Tensor:
    first, second, same = chosen_pairs(pairs, index)
    squares = paired_distances(x, first, second, reference, squared=True)  # (pairs,)
    pull = squares.masked_fill(~same, 0.0).sum()
    push = (margin - squares).relu().masked_fill(same, 0.0).sum()
    if reduction == "mean_each":
        return pull / same.sum().clamp(min=1) + push / (~same).sum().clamp(min=1)
    return pull + push if reduction == "sum" else (pull + push) / max(1, len(pairs))


class Contrastive(nn.Module):
    """`contrastive_loss` as a module.

    >>> Contrastive()
    Contrastive(margin=1.0, reduction='mean_each')
    """

    def __init__(self, *, margin: float = 1.0, reduction: str = "mean_each") -> None:
        super().__init__()
        self.margin = checks.number("margin", margin)
        self.reduction = checks.choice("reduction", reduction, REDUCTIONS)

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        *,
        pairs: Tensor | None = None,
        triplets: Tensor | None = None,
        reference: Tensor | None = None,
        reference_labels: Tensor | None = None,
        includes_batch: bool = False,
    ) -> Tensor:
        return contrastive_loss(
            embeddings,
            labels,
            margin=self.margin,
            reduction=self.reduction,
            pairs=pairs,
            triplets=triplets,
            reference=reference,
            reference_labels=reference_labels,
            includes_batch=includes_batch,
        )

    def extra_repr(self) -> str:
        return options_repr(self, "margin", "reduction")
