"""Contrastive loss on squared distances.

    L = sum_{same pairs} D + sum_{different pairs} max(0, margin - D),   D = ||x_i - x_j||^2
    (D = ||x_i - x_j|| with squared=False, or another `distance`)

over unordered pairs, or over given `pairs`, or all pairs of a sample and one of a reference. Where
labels are similarities r of 0 to 1, a pair counts r times as the same and 1 - r times as different.
`reduction`: "sum" as printed, "mean" over all pairs, "mean_each" the mean over the same pairs plus
the mean over the different ones, "mean_active" the same over the terms above 0. They are different
methods, not scales of one: with "sum" and "mean" the many different pairs outweigh the same ones.

DML-DA paper Eq. 2, after Hadsell et al. 2006 (who use max(0, margin - distance)^2).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.distances import DISTANCES, distance_table, listed_distances
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.references import chosen_pairs, given_pairs, related
from kinspace._core.samples import Anchors, Chosen, Labels, anchor_weights, takes_weights
from kinspace._core.tensor_ops import or_one

__all__ = ["Contrastive", "contrastive_loss"]

REDUCTIONS = ("mean_each", "mean_active", "mean", "sum")


@takes_weights
@takes_options(
    margin=checks.number,
    reduction=checks.one_of(REDUCTIONS),
    distance=checks.or_none(checks.one_of(DISTANCES)),
)
def contrastive_loss(  # noqa: PLR0913 (an option each)
    embeddings: Tensor,
    labels: Labels,
    *,
    margin: float = 1.0,
    reduction: str = "mean_each",
    squared: bool = True,
    distance: str | None = None,
    pairs: Tensor | None = None,
    triplets: Tensor | None = None,
    reference: Tensor | None = None,
    reference_labels: Labels | None = None,
    includes_batch: bool = False,
    **samples: Unpack[Anchors],
) -> Tensor:
    """Contrastive loss (module docstring).

    distance: a word of `kinspace.losses.DISTANCES` instead of the (squared) Euclidean distance.

    One same pair at squared distance 1, different pairs at 0.25 and 2.25:

    >>> import torch
    >>> x = torch.tensor([[0.0], [1.0], [-0.5]])
    >>> contrastive_loss(x, torch.tensor([0, 0, 1]), reduction="sum")
    tensor(1.7500)
    """
    reference, index = related(embeddings, labels, reference, reference_labels, includes_batch)
    weights = anchor_weights(samples)
    distance = distance or ("squared_euclidean" if squared else "euclidean")
    pairs = given_pairs(pairs, triplets, index)
    if pairs is not None:
        first, second, same = chosen_pairs(pairs, index)
        distances = listed_distances(embeddings, first, second, reference, distance=distance)
        near, pulled, pushed = distances, same, ~same  # (pairs,)
        weights = None if weights is None else weights[first]
    else:
        distances = distance_table(embeddings, reference, distance=distance)  # (batch, batch)
        members, pulled = index.positives  # (batch, largest class)
        near, pushed = distances.gather(1, members), index.different
        weights = None if weights is None else weights[:, None]
        if index.grades is not None:
            pulled, pushed = index.grades, index.opposites
    if weights is not None:
        pulled, pushed = pulled * weights, pushed * weights
    pull, push = _counted(near, pulled), _counted((margin - distances).relu(), pushed)
    total = _reduced(pull, push, pulled, pushed, reduction)
    # each pair is there twice, where a batch is compared to itself
    return total / 2 if reduction == "sum" and reference is None and pairs is None else total


def _counted(terms: Tensor, counts: Tensor) -> Tensor:
    """Each term as often as it counts: a mask, or numbers."""
    if counts.dtype == torch.bool:
        return torch.where(counts, terms, 0.0)
    return counts * terms.masked_fill(counts == 0, 0.0)


def _reduced(pull: Tensor, push: Tensor, pulled: Tensor, pushed: Tensor, reduction: str) -> Tensor:
    if reduction == "mean_active":
        pulled, pushed = pulled * (pull > 0), pushed * (push > 0)
    if reduction in ("mean_active", "mean_each"):
        return pull.sum() / or_one(pulled.sum()) + push.sum() / or_one(pushed.sum())
    total = pull.sum() + push.sum()
    return total if reduction == "sum" else total / or_one(pulled.sum() + pushed.sum())


class Contrastive(nn.Module):
    """`contrastive_loss` as a module.

    >>> Contrastive()
    Contrastive(margin=1.0, reduction='mean_each', squared=True, distance=None)
    """

    __call__: Callable[..., Tensor]
    margin: float
    extra_repr = options_repr

    def __init__(
        self,
        *,
        margin: float = 1.0,
        reduction: str = "mean_each",
        squared: bool = True,
        distance: str | None = None,
    ) -> None:
        super().__init__()
        keep_options(
            self, contrastive_loss, margin=margin, reduction=reduction, squared=squared,
            distance=distance,
        )  # fmt: skip

    def forward(self, embeddings: Tensor, labels: Labels, **inputs: Unpack[Chosen]) -> Tensor:
        return contrastive_loss(embeddings, labels, **kept_options(self), **inputs)
