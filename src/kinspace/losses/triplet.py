"""Triplet loss over all triplets, semi-hard, batch-hard or disjoint ones.

    hinge(a, p, n) = max(0, D_ap - D_an + margin),   D squared unless squared=False

- "all": every anchor, positive and negative of the batch; reduction "sum", "mean" over all
  triplets, or "mean_active" over those above 0.
- "semi_hard": for each ordered pair (a, p) the nearest negative farther than p, or the farthest
  negative if none is; mean over these pairs. Schroff et al., FaceNet, CVPR 2015.
- "batch_hard": for each anchor its farthest positive and nearest negative; mean over the anchors
  that have both. Hermans et al. 2017.
- "disjoint": a third of the batch as anchors, no sample in two triplets; mean over these. How
  triplets were drawn one by one, as what Magnet and others compare themselves with.

DML-DA paper Eq. 3. The all-triplet sum takes no table of triplets: for each anchor the thresholds
D_ap + margin are sorted, each negative finds its place among them, and counts of places give how
often each distance enters with which sign. O(N^2 log P) time and O(N^2) memory for P positives an
anchor, exact in value and gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from kinspace import checks
from kinspace.distances import distances_with_pull
from kinspace.miners.batch_hard import hardest
from kinspace.miners.disjoint import disjoint_triplets
from kinspace.miners.semi_hard import semi_hard_negatives
from kinspace.numerics import full_precision
from kinspace.pairs import class_table
from kinspace.slopes import with_slopes

__all__ = ["Triplet", "triplet_loss"]

REDUCTIONS = ("mean", "mean_active", "sum")


@full_precision
def triplet_loss(
    embeddings: Tensor,
    labels: Tensor,
    *,
    margin: float = 1.0,
    mining: str = "all",
    reduction: str = "mean",
    squared: bool = True,
) -> Tensor:
    """Triplet loss (module docstring).

    Triplets (0, 1, 2) and (1, 0, 2) have 1 - 9 + 1 < 0 and 1 - 4 + 1 < 0; with margin 4 the
    second gives 1 - 4 + 4 = 1 and the first 0.

    >>> x = torch.tensor([[0.0], [1.0], [3.0]])
    >>> triplet_loss(x, torch.tensor([0, 0, 1]), margin=4.0)
    tensor(0.5000)
    """
    # the others look at the labels when they make a table of classes
    labels = checks.with_labels(embeddings, labels, read=mining == "batch_hard")
    checks.finite("margin", margin)
    checks.choice("mining", mining, MININGS)
    checks.choice("reduction", reduction, REDUCTIONS)
    distances, pull = distances_with_pull(embeddings, root=not squared)
    if mining == "all":
        value, by_distances = all_triplets(distances, labels, margin, reduction)
    else:
        chosen = MINED[mining](distances, labels)
        value, by_distances = _hinges(distances, *chosen, margin)
    return with_slopes(value, (embeddings, lambda: pull(by_distances())))


@torch.no_grad()
def _semi_hard(distances: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    index, real = class_table(labels)
    negative, has_negative = semi_hard_negatives(distances, index)
    return index, negative, real & has_negative[:, None]


@torch.no_grad()
def _batch_hard(distances: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    positive, negative, used = hardest(distances, labels)
    return positive[:, None], negative[:, None], used[:, None]


@torch.no_grad()
def _disjoint(distances: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    positive, negative, used = disjoint_triplets(labels)
    return positive[:, None], negative[:, None], used[:, None]


MINED = {"semi_hard": _semi_hard, "batch_hard": _batch_hard, "disjoint": _disjoint}
MININGS = ("all", *MINED)


@torch.no_grad()
def _hinges(
    distances: Tensor, positive: Tensor, negative: Tensor, used: Tensor, margin: float
) -> tuple[Tensor, Callable[[], Tensor]]:
    """Mean over the used triplets, one an entry of (batch, some), and its slope by the table."""
    hinges = distances.gather(1, positive).sub_(distances.gather(1, negative)).add_(margin)
    hinges = hinges.relu_().mul_(used)
    count = used.sum().clamp_(min=1)

    def by_distances() -> Tensor:
        active = hinges.sign() / count
        pulls = torch.zeros_like(distances).scatter_add_(1, positive, active)
        return pulls.scatter_add_(1, negative, active.neg_())

    return hinges.sum() / count, by_distances


@torch.no_grad()
def all_triplets(
    distances: Tensor, labels: Tensor, margin: float, reduction: str
) -> tuple[Tensor, Callable[[], Tensor]]:
    """The loss over all triplets of a table of distances, and its slope by the table."""
    index, real = class_table(labels)
    signs, active = _signed_counts(distances, index, real, margin)
    total = (signs * distances).sum().add_(active, alpha=margin)
    if reduction == "sum":
        return total, lambda: signs
    same = real.sum(1)
    count = active if reduction == "mean_active" else (same * (len(labels) - 1 - same)).sum()
    count = count.clamp(min=1)
    return total / count, lambda: signs.div_(count)


def _signed_counts(
    distances: Tensor, index: Tensor, real: Tensor, margin: float
) -> tuple[Tensor, Tensor]:
    """How often each distance enters an active triplet, + as positive and - as negative.

    The sum of all hinges is then (signs * distances).sum() + margin * active.
    """
    width = index.shape[1]
    unreal = ~real
    thresholds = distances.gather(1, index).add_(margin).masked_fill_(unreal, -math.inf)
    ordered, order = thresholds.sort(1)  # (batch, positives)
    queries = distances.scatter(1, index, math.inf)  # the negatives' distances
    # thresholds at or below each negative; those above it are active
    place = torch.searchsorted(ordered, queries, right=True, out_int32=True)
    crossed = (width - place).to(distances.dtype)  # (batch, batch)
    # threshold t is crossed by the negatives placed at t or before
    places = place.new_zeros(len(place), width + 1)
    places.scatter_add_(1, place.long(), place.new_ones(()).expand_as(place))
    below = places.cumsum(1)[:, :width].to(distances.dtype)
    below = torch.empty_like(below).scatter_(1, order, below).masked_fill_(unreal, 0)
    return crossed.neg_().scatter_add_(1, index, below), below.sum()


class Triplet(nn.Module):
    """`triplet_loss` as a module.

    >>> Triplet(mining="semi_hard", margin=0.2)
    Triplet(margin=0.2, mining='semi_hard', reduction='mean', squared=True)
    """

    def __init__(
        self,
        *,
        margin: float = 1.0,
        mining: str = "all",
        reduction: str = "mean",
        squared: bool = True,
    ) -> None:
        super().__init__()
        self.margin = checks.finite("margin", margin)
        self.mining = checks.choice("mining", mining, MININGS)
        self.reduction = checks.choice("reduction", reduction, REDUCTIONS)
        self.squared = squared

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return triplet_loss(
            embeddings,
            labels,
            margin=self.margin,
            mining=self.mining,
            reduction=self.reduction,
            squared=self.squared,
        )

    def extra_repr(self) -> str:
        return (
            f"margin={self.margin}, mining={self.mining!r}, "
            f"reduction={self.reduction!r}, squared={self.squared}"
        )
