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
from kinspace.numerics import full_precision, unit
from kinspace.pairs import class_table, different_pairs

__all__ = ["distance_weighted", "distance_weights", "drawn_triplets"]


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
    labels = checks.with_labels(embeddings, labels)
    checks.positive("cutoff", cutoff)
    checks.positive("nonzero_cutoff", nonzero_cutoff)
    distances = euclidean_distances(unit(embeddings))
    return _weights(distances, embeddings.shape[1], labels, cutoff, nonzero_cutoff)


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
    labels = checks.with_labels(embeddings, labels)
    checks.positive("cutoff", cutoff)
    checks.positive("nonzero_cutoff", nonzero_cutoff)
    distances = euclidean_distances(unit(embeddings))
    weights = _weights(distances, embeddings.shape[1], labels, cutoff, nonzero_cutoff)
    return _drawn(weights, labels, generator)


def drawn_triplets(
    distances: Tensor,
    dim: int,
    labels: Tensor,
    generator: torch.Generator,
    *,
    cutoff: float,
    nonzero_cutoff: float,
) -> Tensor:
    """`distance_weighted` on the distances of checked rows of length 1."""
    weights = _weights(distances.clone(), dim, labels, cutoff, nonzero_cutoff)
    return _drawn(weights, labels, generator)


def _drawn(weights: Tensor, labels: Tensor, generator: torch.Generator | None) -> Tensor:
    # Drawn by inverse cumulative weights, one draw a positive: no (triplets, batch) table.
    steps = weights.cumsum(1)
    total = steps[:, -1:]
    index, real = class_table(labels)
    draws = torch.rand(
        index.shape, generator=generator, device=None if generator is None else generator.device
    )
    # kept under the total, which rounding could otherwise reach: no sample lies beyond it
    below = 1 - torch.finfo(steps.dtype).eps
    negative = torch.searchsorted(steps, draws.to(steps).clamp_(max=below) * total, right=True)
    anchors = torch.arange(len(labels), device=labels.device)[:, None].expand_as(index)
    return torch.stack([anchors, index, negative], dim=2)[real & (total > 0)]


def _weights(
    distances: Tensor, dim: int, labels: Tensor, cutoff: float, nonzero_cutoff: float
) -> Tensor:
    """The probabilities; the table of distances is used up."""
    negatives = different_pairs(labels)
    usable = negatives & (distances < nonzero_cutoff)
    clipped = distances.clamp_(min=cutoff)
    # opposite points have 1 - D^2/4 = 0, a log of -inf: they are beyond any useful cutoff
    inside = (clipped.square() / -4).add_(1).clamp_(min=torch.finfo(distances.dtype).tiny)
    logs = clipped.log_().mul_(2 - dim).add_(inside.log_(), alpha=(3 - dim) / 2)
    logs.masked_fill_(~usable, -math.inf)
    del inside
    # a row of -inf has no softmax: there all negatives are equal
    some = usable.any(1, keepdim=True)
    logs = torch.where(some, logs, torch.where(negatives, 0.0, -math.inf).to(logs.dtype))
    return logs.softmax(1).nan_to_num_(0)
