"""Contrastive loss on squared distances.

    L = sum_{same pairs} D + sum_{different pairs} max(0, margin - D),   D = ||x_i - x_j||^2
    (D = ||x_i - x_j|| with squared=False)

over unordered pairs, or over given `pairs`, or all pairs of a sample and one of a reference.
`reduction`: "sum" as printed, "mean" over all pairs, "mean_each" the mean over the same pairs plus
the mean over the different ones, "mean_active" the same over the terms above 0. They are different
methods, not scales of one: with "sum" and "mean" the many different pairs outweigh the same ones.

DML-DA paper Eq. 2, after Hadsell et al. 2006 (who use max(0, margin - distance)^2).
"""

from __future__ import annotations

from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.checks import options_repr
from kinspace._core.references import chosen_pairs, compared, given_pairs
from kinspace._core.tensor_ops import full_precision
from kinspace._core.vectors import paired_distances, safe_sqrt, squared_distances

__all__ = ["Contrastive", "contrastive_loss"]

REDUCTIONS = ("mean_each", "mean_active", "mean", "sum")


@full_precision
def contrastive_loss(  # noqa: PLR0913 (an option each)
    embeddings: Tensor,
    labels: Tensor,
    *,
    margin: float = 1.0,
    reduction: str = "mean_each",
    squared: bool = True,
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
        first, second, same = chosen_pairs(pairs, index)
        distances = paired_distances(embeddings, first, second, reference, squared=squared)
        pull = distances.masked_fill(~same, 0.0)  # (pairs,)
        push = (margin - distances).relu().masked_fill(same, 0.0)
        return _reduced(pull, push, same.sum(), len(pairs), reduction)
    squares = squared_distances(embeddings, reference)
    distances = squares if squared else safe_sqrt(squares)  # (batch, batch)
    members, positive = index.positives  # (batch, largest class)
    pull = distances.gather(1, members).masked_fill(~positive, 0.0)
    push = (margin - distances).relu().masked_fill(index.same, 0.0)
    total = _reduced(pull, push, positive.sum(), index.comparisons, reduction)
    # each pair is there twice, where a batch is compared to itself
    return total / 2 if reduction == "sum" and reference is None else total


def _reduced(pull: Tensor, push: Tensor, same: Tensor, pairs: int, reduction: str) -> Tensor:
    """same: how many of the pairs are of one class."""
    if reduction == "mean_active":
        pulled, pushed = (pull > 0).sum(), (push > 0).sum()
        return pull.sum() / pulled.clamp(min=1) + push.sum() / pushed.clamp(min=1)
    if reduction == "mean_each":
        return pull.sum() / same.clamp(min=1) + push.sum() / (pairs - same).clamp(min=1)
    total = pull.sum() + push.sum()
    return total if reduction == "sum" else total / max(1, pairs)


class Contrastive(nn.Module):
    """`contrastive_loss` as a module.

    >>> Contrastive()
    Contrastive(margin=1.0, reduction='mean_each', squared=True)
    """

    def __init__(
        self, *, margin: float = 1.0, reduction: str = "mean_each", squared: bool = True
    ) -> None:
        super().__init__()
        self.margin = checks.number("margin", margin)
        self.reduction = checks.choice("reduction", reduction, REDUCTIONS)
        self.squared = squared

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
            squared=self.squared,
            pairs=pairs,
            triplets=triplets,
            reference=reference,
            reference_labels=reference_labels,
            includes_batch=includes_batch,
        )

    def extra_repr(self) -> str:
        return options_repr(self, "margin", "reduction", "squared")
