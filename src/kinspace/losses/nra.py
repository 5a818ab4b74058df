"""NRA: a loss on nonlinear approximated ranks.

For each anchor i with distances D to all others (plain, not squared; embeddings not normalized):

    r(D) = (D - D_min) / (D_max - D_min)
    w(r) = (2r)^a / 2 for r < 1/2,   1 - (2(1 - r))^a / 2 above
    J    = -mean_i [ log(1 - w(r(D+)) + eps) + log(w(r(D-)) + eps) ]

D+ is the largest distance to a sample of the same class, D- the smallest to one of another. The
gradient passes through all four distances; with `detach_range` D_min and D_max are constants. If
all distances are equal r is 1/2 and has no gradient. An anchor without a positive (or negative)
has that term 0 and still counts in the mean.

Schall et al., Deep metric learning using similarities from nonlinear rank approximations, 2019,
Eq. 6-13.

Known weakness, reported by `rank_statistics`: an anchor whose nearest sample is a negative has r- =
0, loss at its cap and gradient zero, and likewise r+ = 1. From scratch most anchors are there;
from pretrained features few are. a < 1 has infinite slopes at both ends and is rejected.

`sharpness` g, ours, none in print, has a gradient there too: D+ and D- are the log-exp means of the
skewed-mean paper (Eq. 7), a soft maximum and a soft minimum, with distances in units of u, the
mean one of the anchor, so that the scale of the embeddings is of no account:

    D+ = u/g log mean_{same} exp(g D/u)      D- = -u/g log mean_{other} exp(-g D/u)

They lie between the hard ones and the mean, so that 0 < r- and r+ < 1 unless all are equal; the
larger g, the nearer to the hard ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.references import compared
from kinspace._core.samples import Anchors, Labels, Reference, takes_samples
from kinspace._core.tensor_ops import REDUCTIONS, reduce
from kinspace._core.vectors import paired_distances
from kinspace.losses.rank_extremes import extreme_neighbors, soft_extremes

__all__ = ["NRA", "nra_loss"]


@takes_samples
@takes_options(
    alpha=checks.at_least(1),
    eps=checks.positive,
    sharpness=checks.or_none(checks.positive),
    reduction=checks.one_of(REDUCTIONS),
)
def nra_loss(  # noqa: PLR0913 (an option each)
    embeddings: Tensor,
    labels: Labels,
    *,
    alpha: float = 4.0,
    eps: float = 1e-4,
    detach_range: bool = False,
    sharpness: float | None = None,
    reduction: str = "mean",
    reference: Tensor | None = None,
    reference_labels: Labels | None = None,
    includes_batch: bool = False,
    **samples: Unpack[Anchors],
) -> Tensor:
    """NRA loss (module docstring).

    Each anchor's positive is its nearest sample, r+ = 0. For the outer two r- = (4 - 1)/(5 - 1),
    for the inner two (3 - 1)/(4 - 1); with alpha 1 the value is -(log 3/4 + log 2/3)/2, but for
    eps.

    >>> x = torch.tensor([[0.0], [1.0], [4.0], [5.0]])
    >>> nra_loss(x, torch.tensor([0, 0, 1, 1]), alpha=1.0)
    tensor(0.3463)
    """
    reference, index = compared(embeddings, labels, reference, reference_labels, includes_batch)
    neighbors, squares = extreme_neighbors(embeddings, reference, index)  # (batch, 4) each
    itself = torch.arange(len(neighbors), device=neighbors.device)[:, None]
    distances = paired_distances(embeddings, itself.expand_as(neighbors), neighbors, reference)
    farthest_positive, nearest_negative, high, low = distances.unbind(1)  # D+, D-, D_max, D_min
    if sharpness is not None:
        farthest_positive, nearest_negative = soft_extremes(embeddings, reference, index, sharpness)
    if detach_range:
        low, high = low.detach(), high.detach()
    pull = -torch.log(1 - _weight(_rank(farthest_positive, low, high), alpha) + eps)
    push = -torch.log(_weight(_rank(nearest_negative, low, high), alpha) + eps)
    no_positive, no_negative = squares[:, :2].isinf().unbind(1)
    return reduce(pull.masked_fill(no_positive, 0) + push.masked_fill(no_negative, 0), reduction)


def _rank(distance: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """r, 1/2 where all distances are equal."""
    flat = high <= low
    rank = (distance - low) / (high - low).masked_fill(flat, math.inf)
    outside = (rank - rank.clamp(0, 1)).detach()  # by rounding
    return (rank - outside).masked_fill(flat, 0.5)


def _weight(rank: Tensor, alpha: float) -> Tensor:
    """w, an S-shaped curve from (0, 0) to (1, 1)."""
    low = rank < 0.5
    half = (2 * torch.where(low, rank, 1 - rank)) ** alpha / 2
    return torch.where(low, half, 1 - half)


class NRA(nn.Module):
    """`nra_loss` as a module.

    >>> NRA()
    NRA(alpha=4.0, eps=0.0001, detach_range=False, sharpness=None, reduction='mean')
    """

    __call__: Callable[..., Tensor]
    extra_repr = options_repr

    def __init__(
        self,
        *,
        alpha: float = 4.0,
        eps: float = 1e-4,
        detach_range: bool = False,
        sharpness: float | None = None,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        keep_options(
            self, nra_loss, alpha=alpha, eps=eps, detach_range=detach_range, sharpness=sharpness,
            reduction=reduction,
        )  # fmt: skip

    def forward(self, embeddings: Tensor, labels: Labels, **inputs: Unpack[Reference]) -> Tensor:
        return nra_loss(embeddings, labels, **kept_options(self), **inputs)
