"""What a rank of distances is measured by: the extremes of each sample's distances to the others.

Of each anchor the farthest positive, the nearest negative, the farthest and the nearest sample of
all, as `kinspace.losses.nra` needs them; how often they coincide, where NRA has no gradient; and
soft extremes, which always have one: the log-exp means of the skewed-mean paper (Eq. 7), with
distances in units of u, the mean one of the anchor, and g the sharpness,

    D+ = u/g log mean_{same} exp(g D/u)      D- = -u/g log mean_{other} exp(-g D/u)
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kinspace._core import checks
from kinspace._core.class_index import ClassIndex
from kinspace._core.tensor_ops import full_precision, log_mean_exp
from kinspace._core.vectors import euclidean_distances, fill_diagonal, squared_distances

__all__ = ["extreme_neighbors", "rank_statistics", "soft_extremes"]


@torch.no_grad()
def extreme_neighbors(
    embeddings: Tensor, reference: Tensor | None, index: ClassIndex
) -> tuple[Tensor, Tensor]:
    """Indices of the farthest positive, nearest negative, farthest and nearest other sample.

    And their squared distances, infinite where there is no such sample; both (batch, 4).

    >>> x, labels = torch.tensor([[0.0], [1.0], [5.0]]), torch.tensor([0, 0, 1])
    >>> extreme_neighbors(x, None, ClassIndex(labels))[0][:2]
    tensor([[1, 2, 2, 1],
            [0, 2, 2, 0]])
    """
    squares = squared_distances(embeddings.detach(), reference)
    same = index.same
    if index.excludes_itself:
        squares = fill_diagonal(squares, -math.inf)  # no own positive, and never the farthest
    farthest = squares.max(1)
    positive = squares.masked_fill(~same, -math.inf).max(1)
    if index.excludes_itself:
        squares = fill_diagonal(squares, math.inf)
    nearest = squares.min(1)
    negative = squares.masked_fill(same, math.inf).min(1)
    four = (positive, negative, farthest, nearest)
    indices = torch.stack([extreme.indices for extreme in four], dim=1)
    return indices, torch.stack([extreme.values for extreme in four], dim=1)


def soft_extremes(
    embeddings: Tensor, reference: Tensor | None, index: ClassIndex, sharpness: float | Tensor
) -> tuple[Tensor, Tensor]:
    """D+ and D- of each sample (module docstring), (batch,) each; 0 over none.

    >>> x, labels = torch.tensor([[0.0], [1.0], [5.0]]), torch.tensor([0, 0, 1])
    >>> soft_extremes(x, None, ClassIndex(labels), 8.0)
    (tensor([1., 1., 0.]), tensor([5.0000, 4.0000, 4.3021]))
    """
    distances = euclidean_distances(embeddings, reference)  # (batch, batch)
    same, different = index.same, index.different
    if index.excludes_itself:
        same = fill_diagonal(same, False)
    others = same | different
    unit = (distances * others).sum(1) / others.sum(1).clamp(min=1)  # u, (batch,)
    unit = unit.masked_fill(unit == 0, 1.0)
    scaled = distances * (sharpness / unit)[:, None]
    far, near = log_mean_exp(scaled, same), -log_mean_exp(-scaled, different)
    return far * unit / sharpness, near * unit / sharpness


@torch.no_grad()
@full_precision
def rank_statistics(embeddings: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Fractions of anchors whose push (r- = 0) and whose pull (r+ = 1) in NRA are at their caps.

    There NRA with alpha > 1 has no gradient.

    >>> x = torch.tensor([[0.0], [4.0], [1.0], [5.0]])
    >>> rank_statistics(x, torch.tensor([0, 0, 1, 1]))
    (tensor(1.), tensor(0.5000))
    """
    labels = checks.labels(embeddings, labels)
    if len(embeddings) == 1:
        return embeddings.new_zeros(()), embeddings.new_zeros(())
    _, squares = extreme_neighbors(embeddings, None, ClassIndex(labels))
    positive, negative, farthest, nearest = squares.unbind(1)
    return (negative == nearest).float().mean(), (positive == farthest).float().mean()
