"""Distance-weighted sampling of negatives on the unit sphere.

    log w(D) = -( (d - 2) log D + (d - 3)/2 log(1 - D^2/4) ),   D = max(distance, cutoff)

Pairs of random points on the sphere in d dimensions are nearly all at distance sqrt 2; weighting by
the inverse of their density draws negatives evenly over distances. Distances of nonzero_cutoff and
more get weight 0 (their gradient is small); if nothing is left, all negatives are drawn evenly.

Wu et al., Sampling matters in deep embedding learning, ICCV 2017, Eq. 3-4.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kinspace import checks
from kinspace.miners import distance_weighted_kernel
from kinspace.numerics import full_precision, unit
from kinspace.pairs import class_table

__all__ = ["beside_negatives", "distance_weighted", "distance_weights"]


@torch.no_grad()
@full_precision
def distance_weights(
    embeddings: Tensor, labels: Tensor, *, cutoff: float = 0.5, nonzero_cutoff: float = 1.4
) -> Tensor:
    """Probability of each sample as the negative of each anchor, (batch, batch).

    The embeddings are scaled to length 1 first. A row with no negative is all 0.

    >>> x = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.1, 0.0], [0.8, 0.6, 0.0], [0.6, 0.8, 0.0]])
    >>> distance_weights(x, torch.tensor([0, 0, 1, 1]))[0]
    tensor([0.0000, 0.0000, 0.5858, 0.4142])
    """
    labels = checks.with_labels(embeddings, labels, read=False)
    checks.positive("cutoff", cutoff)
    checks.positive("nonzero_cutoff", nonzero_cutoff)
    weights = _weights(unit(embeddings), class_table(labels)[0], cutoff, nonzero_cutoff)
    return weights.nan_to_num_(0)


@torch.no_grad()
@full_precision
def distance_weighted(
    embeddings: Tensor,
    labels: Tensor,
    *,
    generator: torch.Generator | None = None,
    cutoff: float = 0.5,
    nonzero_cutoff: float = 1.4,
) -> Tensor:
    """A triplet (anchor, positive, drawn negative) for each ordered positive pair, (T, 3).

    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.8, 0.6]])
    >>> distance_weighted(x, torch.tensor([0, 0, 1]), generator=torch.Generator().manual_seed(0))
    tensor([[0, 1, 2],
            [1, 0, 2]])
    """
    labels = checks.with_labels(embeddings, labels, read=False)
    checks.positive("cutoff", cutoff)
    checks.positive("nonzero_cutoff", nonzero_cutoff)
    index, positive = class_table(labels)
    if index.shape[1] == len(labels):
        return labels.new_empty(0, 3)  # one class: no negatives
    both = beside_negatives(unit(embeddings), index, generator, (cutoff, nonzero_cutoff))
    anchors = torch.arange(len(labels), device=labels.device)[:, None].expand_as(index)
    return torch.stack([anchors, *both.chunk(2, 1)], dim=2)[positive]


def beside_negatives(
    x: Tensor, index: Tensor, generator: torch.Generator | None, cutoffs: tuple[float, float]
) -> Tensor:
    """The table of classes (batch, class), of which there are two, and beside it a negative each.

    x: rows of length 1. Returns (batch, 2 class): on a GPU a launch less than two tables.
    """
    device = None if generator is None else generator.device
    draws = torch.rand(index.shape, generator=generator, device=device).to(x)
    if distance_weighted_kernel.ready(x):
        return distance_weighted_kernel.beside_negatives(x, index, draws, cutoffs)
    # Drawn by inverse cumulative weights: no table of one row a draw.
    steps = _weights(x, index, *cutoffs).cumsum_(1)
    # kept under the total, which rounding could otherwise reach: no sample lies beyond it
    draws = draws.clamp_(max=1 - torch.finfo(torch.float32).eps).mul_(steps[:, -1:])
    negative = torch.searchsorted(steps, draws, right=True)
    return torch.cat([index, negative.clamp_(max=len(x) - 1)], 1)  # of weights that are not finite


def _weights(x: Tensor, index: Tensor, cutoff: float, nonzero_cutoff: float) -> Tensor:
    """The probabilities; a row with no negative is NaN."""
    dim = x.shape[1]
    lengths = torch.linalg.vector_norm(x, dim=1)  # 0 or 1; no distance under the cutoff matters
    squares = torch.addmm(lengths, x, x.T, alpha=-2).add_(lengths[:, None])
    # opposite points have 1 - D^2/4 = 0, a log of -inf: they are beyond any useful cutoff
    clipped = squares.clamp(cutoff**2, 4 - 4 * torch.finfo(squares.dtype).eps)
    inside = torch.rsub(clipped, 1, alpha=0.25).log_()
    logs = clipped.log_().mul_((2 - dim) / 2).add_(inside, alpha=(3 - dim) / 2)
    del inside
    # as good as weight 0 beside any other, and equal weights where there is no other
    logs.masked_fill_(squares >= nonzero_cutoff**2, torch.finfo(logs.dtype).min)
    return logs.scatter_(1, index, -math.inf).softmax(1)
