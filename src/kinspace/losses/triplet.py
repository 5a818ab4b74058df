"""Triplet loss over all triplets, semi-hard, batch-hard or disjoint ones.

    hinge(a, p, n) = max(0, D_ap - D_an + margin),   D squared unless squared=False, or `distance`

- "all": every anchor, positive and negative of the batch; reduction "sum", "mean" over all
  triplets, or "mean_active" over those above 0.
- "semi_hard": for each ordered pair (a, p) the nearest negative farther than p, or the farthest
  negative if none is; mean over these pairs. Schroff et al., FaceNet, CVPR 2015.
- "batch_hard": for each anchor its farthest positive and nearest negative; mean over the anchors
  that have both. Hermans et al. 2017.
- "disjoint": a third of the batch as anchors, no sample in two triplets; mean over these. How
  triplets were drawn one by one, as what Magnet and others compare themselves with.

- a miner: any function of embeddings and labels that returns triplets (T, 3) or pairs (P, 2), such
  as those of `kinspace.miners`; or given `triplets` or `pairs`, which make all triplets of a same
  and a different pair with one anchor; reduced like "all".

DML-DA paper Eq. 3.

The sum over all triplets takes no table of triplets. Let n_ap be the number of negatives of anchor
a with D_an < D_ap + margin, and m_an the number of its positives with D_ap + margin > D_an. Then

    sum_{a,p,n} hinge(a, p, n) = sum_{a,p} n_ap (D_ap + margin) - sum_{a,n} m_an D_an

The counts are constants wherever the loss has a derivative. For each anchor the P thresholds D_ap +
margin are sorted and each negative finds its place among them: O(N^2 log P) time, O(N^2) memory,
exact in the value and in every derivative.
"""

from __future__ import annotations

import math
from typing import Unpack

import torch
from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.checks import options_repr
from kinspace._core.class_index import ClassIndex
from kinspace._core.distances import DISTANCES, distance_table, listed_distances
from kinspace._core.references import (
    Miner,
    checked_miner,
    compared,
    given_triplets,
    mined_triplets,
)
from kinspace._core.samples import Anchors, Chosen, Labels, anchor_weights, takes_weights
from kinspace._core.tensor_ops import or_one
from kinspace.miners.batch_hard import hardest
from kinspace.miners.disjoint import disjoint_triplets
from kinspace.miners.semi_hard import semi_hard_negatives

__all__ = ["Triplet", "all_triplets", "triplet_loss"]

REDUCTIONS = ("mean", "mean_active", "sum")


@takes_weights
def triplet_loss(  # noqa: PLR0913 (an option each)
    embeddings: Tensor,
    labels: Labels,
    *,
    margin: float = 1.0,
    mining: str | Miner = "all",
    reduction: str = "mean",
    squared: bool = True,
    distance: str | None = None,
    pairs: Tensor | None = None,
    triplets: Tensor | None = None,
    reference: Tensor | None = None,
    reference_labels: Labels | None = None,
    includes_batch: bool = False,
    **samples: Unpack[Anchors],
) -> Tensor:
    """Triplet loss (module docstring).

    Triplets (0, 1, 2) and (1, 0, 2) have 1 - 9 + 1 < 0 and 1 - 4 + 1 < 0; with margin 4 the
    second gives 1 - 4 + 4 = 1 and the first 0.

    >>> x = torch.tensor([[0.0], [1.0], [3.0]])
    >>> triplet_loss(x, torch.tensor([0, 0, 1]), margin=4.0)
    tensor(0.5000)
    """
    reference, index = compared(embeddings, labels, reference, reference_labels, includes_batch)
    checks.number("margin", margin)
    checked_miner("mining", mining, MININGS)
    checks.choice("reduction", reduction, REDUCTIONS)
    weights = anchor_weights(samples)
    distance = distance or ("squared_euclidean" if squared else "euclidean")
    triplets = given_triplets(pairs, triplets, index)
    if triplets is None and not isinstance(mining, str):
        triplets = mined_triplets(mining, embeddings, reference, index)
    if triplets is not None:
        anchor, positive, negative = triplets.unbind(1)
        near, far = (
            listed_distances(embeddings, anchor, other, reference, distance=distance)
            for other in (positive, negative)
        )
        counts = torch.ones_like(anchor, dtype=torch.bool)
        weights = None if weights is None else weights[anchor]
        return _reduced(near - far + margin, counts, weights, reduction)
    distances = distance_table(embeddings, reference, distance=distance)  # (batch, batch)
    if mining == "all":
        return all_triplets(distances, index, margin, reduction, weights)
    positive, negative, used = MINERS[str(mining)](distances.detach(), index)  # (batch, some) each
    beyond = distances.gather(1, positive) - distances.gather(1, negative) + margin
    weights = None if weights is None else weights[:, None].expand_as(beyond)
    return _reduced(beyond, used, weights, "mean")


def _reduced(beyond: Tensor, used: Tensor, weights: Tensor | None, reduction: str) -> Tensor:
    """The hinges of the values that are used, each with its weight."""
    hinges = beyond.relu().masked_fill(~used, 0.0)
    if reduction == "mean_active":
        used = used & (hinges > 0)
    counts = used if weights is None else weights * used
    total = hinges.sum() if weights is None else (weights * hinges).sum()
    return total if reduction == "sum" else total / or_one(counts.sum())


@torch.no_grad()
def _semi_hard(distances: Tensor, index: ClassIndex) -> tuple[Tensor, Tensor, Tensor]:
    members, positive = index.positives
    negative, has_negative = semi_hard_negatives(distances, members)
    return members, negative, positive & has_negative[:, None]


def _batch_hard(distances: Tensor, index: ClassIndex) -> tuple[Tensor, Tensor, Tensor]:
    positive, negative, used = hardest(distances, index)
    return positive[:, None], negative[:, None], used[:, None]


def _disjoint(distances: Tensor, index: ClassIndex) -> tuple[Tensor, Tensor, Tensor]:
    positive, negative, used = disjoint_triplets(index)
    return positive[:, None], negative[:, None], used[:, None]


MINERS = {"semi_hard": _semi_hard, "batch_hard": _batch_hard, "disjoint": _disjoint}
MININGS = ("all", *MINERS)


def all_triplets(
    distances: Tensor,
    index: ClassIndex,
    margin: float | Tensor,
    reduction: str,
    weights: Tensor | None = None,
) -> Tensor:
    """The loss over all triplets of a table of distances (module docstring)."""
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


class Triplet(nn.Module):
    """`triplet_loss` as a module.

    >>> Triplet(mining="semi_hard", margin=0.2)
    Triplet(margin=0.2, mining='semi_hard', reduction='mean', squared=True, distance=None)
    """

    def __init__(
        self,
        *,
        margin: float = 1.0,
        mining: str | Miner = "all",
        reduction: str = "mean",
        squared: bool = True,
        distance: str | None = None,
    ) -> None:
        super().__init__()
        self.margin = checks.number("margin", margin)
        self.mining = checked_miner("mining", mining, MININGS)
        self.reduction = checks.choice("reduction", reduction, REDUCTIONS)
        self.squared, self.distance = squared, distance
        if distance is not None:
            checks.choice("distance", distance, DISTANCES)

    def forward(self, embeddings: Tensor, labels: Labels, **inputs: Unpack[Chosen]) -> Tensor:
        return triplet_loss(
            embeddings,
            labels,
            margin=self.margin,
            mining=self.mining,
            reduction=self.reduction,
            squared=self.squared,
            distance=self.distance,
            **inputs,
        )

    def extra_repr(self) -> str:
        return options_repr(self, "margin", "mining", "reduction", "squared", "distance")
