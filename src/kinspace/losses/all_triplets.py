"""The triplet loss over all triplets of a batch, without a table of triplets.

    L = sum_{a,p,n} hinge(a, p, n),   hinge(a, p, n) = max(0, D_ap - D_an + margin)

Let n_ap be the number of negatives of anchor a with D_an < D_ap + margin, and m_an the number of
its positives with D_ap + margin > D_an. Each active triplet adds D_ap + margin and takes D_an, so

    L = sum_{a,p} n_ap (D_ap + margin) - sum_{a,n} m_an D_an

The counts are constants wherever the loss has a derivative. For each anchor the P thresholds D_ap +
margin are sorted and each negative finds its place among them: O(N^2 log P) time, O(N^2) memory,
exact in the value and in every derivative.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kinspace._core.class_index import ClassIndex
from kinspace._core.tensor_ops import or_one

__all__ = ["all_triplets"]


def all_triplets(
    distances: Tensor,
    index: ClassIndex,
    margin: float | Tensor,
    reduction: str,
    weights: Tensor | None = None,
) -> Tensor:
    """The loss of a table of distances (module docstring), summed or as a mean.

    "mean" is over all triplets, "mean_active" over those above 0; weights are those of the anchors.

    >>> distances = torch.tensor([[0.0, 1.0, 9.0], [1.0, 0.0, 4.0], [9.0, 4.0, 0.0]])
    >>> all_triplets(distances, ClassIndex(torch.tensor([0, 0, 1])), 4.0, "sum")
    tensor(1.)
    """
    signs, active = _signed_counts(distances.detach(), index, margin)
    positives = index.sizes - int(index.excludes_itself)
    triplets = positives * (len(index.others) - index.sizes)  # (batch,)
    if weights is not None:
        signs, active, triplets = signs * weights[:, None], active * weights, triplets * weights
    total = (signs * distances).sum() + margin * active.sum()
    if reduction == "sum":
        return total
    return total / or_one((active if reduction == "mean_active" else triplets).sum())


@torch.no_grad()
def _signed_counts(
    distances: Tensor, index: ClassIndex, margin: float | Tensor
) -> tuple[Tensor, Tensor]:
    """n_ap at the positives and -m_an at the negatives, (batch, batch); sums of n_ap, (batch,)."""
    members, positive = index.positives  # (batch, P)
    width = members.shape[1]
    thresholds = (distances.gather(1, members) + margin).masked_fill(~positive, -math.inf)
    ordered, order = thresholds.sort(1)
    queries = distances.scatter(1, members, math.inf)  # the negatives' distances
    # thresholds at or below each negative; those above it are active
    place = torch.searchsorted(ordered, queries, right=True)
    above = (width - place).to(distances.dtype)  # m_an; 0 at positives
    # a threshold is above the negatives that are placed at it or before
    places = torch.zeros_like(place[:, :1]).expand(-1, width + 1)
    places = places.scatter_add(1, place, torch.ones_like(place))
    below = places.cumsum(1)[:, :width].to(distances.dtype)
    below = torch.zeros_like(below).scatter(1, order, below).masked_fill(~positive, 0.0)  # n_ap
    return (-above).scatter_add(1, members, below), below.sum(1)
