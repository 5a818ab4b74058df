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
from kinspace.distances import euclidean_distances
from kinspace.numerics import unit
from kinspace.pairs import different_pairs, positives

__all__ = ["distance_weighted", "distance_weights"]


@torch.no_grad()
def distance_weights(
    embeddings: Tensor, labels: Tensor, *, cutoff: float = 0.5, nonzero_cutoff: float = 1.4
) -> Tensor:
    """Probability of each sample as the negative of each anchor, (batch, batch).

    The embeddings are scaled to length 1 first. A row with no negative is all 0.

    >>> x = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.1, 0.0], [0.8, 0.6, 0.0], [0.6, 0.8, 0.0]])
    >>> distance_weights(x, torch.tensor([0, 0, 1, 1]))[0]
    tensor([0.0000, 0.0000, 0.5858, 0.4142])
    """
    labels = checks.with_labels(embeddings, labels)
    checks.positive("cutoff", cutoff)
    checks.positive("nonzero_cutoff", nonzero_cutoff)
    dim = embeddings.shape[1]
    distances = euclidean_distances(unit(embeddings))
    negatives = different_pairs(labels)
    # opposite points have 1 - D^2/4 = 0, a log of -inf: they are beyond any useful cutoff
    clipped = distances.clamp(min=cutoff)
    inside = (1 - clipped.square() / 4).clamp(min=torch.finfo(distances.dtype).tiny)
    logs = -((dim - 2) * clipped.log() + (dim - 3) / 2 * inside.log())
    usable = negatives & (distances < nonzero_cutoff)
    logs = torch.where(usable, logs, -math.inf)
    top = logs.amax(1, keepdim=True)
    weights = torch.exp(logs - top.masked_fill(top == -math.inf, 0))
    weights = torch.where(usable.any(1, keepdim=True), weights, negatives.to(weights.dtype))
    return weights / weights.sum(1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)


@torch.no_grad()
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
    weights = distance_weights(embeddings, labels, cutoff=cutoff, nonzero_cutoff=nonzero_cutoff)
    index, real = positives(labels.long())
    real = real & (weights.sum(1, keepdim=True) > 0)
    anchors = torch.arange(len(labels), device=labels.device)[:, None].expand_as(index)
    # Drawn by inverse cumulative weights, one draw a positive: no (triplets, batch) table.
    draws = torch.rand(
        index.shape, generator=generator, device=None if generator is None else generator.device
    )
    steps = weights.cumsum(1)
    # kept under the total, which rounding could otherwise reach: no sample lies beyond it
    below = 1 - torch.finfo(steps.dtype).eps
    negative = torch.searchsorted(
        steps, draws.to(steps).clamp_(max=below) * steps[:, -1:], right=True
    )
    return torch.stack([anchors, index, negative], dim=2)[real]
