"""Relational distillation: the relations among a student's embeddings follow the teacher's.

    distance   L = mean_{i != j} h( d_ij / mean d - e_ij / mean e )
    angle      L = mean_{i, j, k different} h( cos_x(i, j, k) - cos_t(i, j, k) )

d and e are the plain distances of student and teacher, their means over all pairs; cos(i, j, k) is
the cosine of the angle at j of the triangle of i, j and k. h is the Huber loss, h(u) = u^2/2 up to
|u| = 1 and |u| - 1/2 beyond. Student and teacher may have different dimensions; the teacher gets no
gradient.

Park et al., Relational knowledge distillation, CVPR 2019, Eq. 3-8; the means where the paper sums.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from kinspace._core import checks
from kinspace._core.tensor_ops import full_precision
from kinspace._core.vectors import euclidean_distances, off_diagonal, unit

__all__ = [
    "RelationalAngle",
    "RelationalDistance",
    "relational_angle_loss",
    "relational_distance_loss",
]


@full_precision
def relational_distance_loss(embeddings: Tensor, teacher: Tensor) -> Tensor:
    """Distance-wise relational distillation (module docstring); a row of the teacher each.

    Distances 1, 2, 3 (mean 2) and 1, 1, 2 (mean 4/3): differences 1/4, 1/4 and 0.

    >>> student, teacher = torch.tensor([[0.0], [1.0], [3.0]]), torch.tensor([[0.0], [1.0], [2.0]])
    >>> relational_distance_loss(student, teacher)
    tensor(0.0208)
    """
    teacher = checks.paired_rows("teacher", teacher, "embeddings", embeddings).detach()
    if len(embeddings) < 2:
        return embeddings.flatten()[:0].sum()
    student = _relative_distances(embeddings)
    return functional.smooth_l1_loss(student, _relative_distances(teacher))


def _relative_distances(x: Tensor) -> Tensor:
    """Distances to the other samples over their mean, (batch, batch - 1)."""
    distances = off_diagonal(euclidean_distances(x))
    mean = distances.mean()
    return distances / mean.masked_fill(mean == 0, 1.0)


@full_precision
def relational_angle_loss(embeddings: Tensor, teacher: Tensor) -> Tensor:
    """Angle-wise relational distillation (module docstring); a row of the teacher each.

    A right angle and two of 45 degrees; three points of a line have the cosines -1, 1 and 1 there.

    >>> student = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> relational_angle_loss(student, torch.tensor([[0.0], [1.0], [-1.0]]))
    tensor(0.1953)
    """
    teacher = checks.paired_rows("teacher", teacher, "embeddings", embeddings).detach()
    size = len(embeddings)
    if size < 3:
        return embeddings.flatten()[:0].sum()
    differences = functional.smooth_l1_loss(_angles(embeddings), _angles(teacher), reduction="none")
    i, j, k = (torch.arange(size, device=teacher.device).view(shape) for shape in _axes(size))
    counts = (i != j) & (j != k) & (i != k)  # (batch, batch, batch)
    return differences.masked_fill(~counts, 0.0).sum() / (size * (size - 1) * (size - 2))


def _axes(size: int) -> tuple[tuple[int, int, int], ...]:
    return (1, size, 1), (size, 1, 1), (1, 1, size)


def _angles(x: Tensor) -> Tensor:
    """Cosines of the angles at each sample between all others, (batch, batch, batch)."""
    directions = unit(x[None] - x[:, None])  # from j to i: (batch, batch, dim)
    return directions @ directions.mT


class RelationalDistance(nn.Module):
    """`relational_distance_loss` as a module, called on embeddings and the teacher's.

    >>> RelationalDistance()(torch.eye(3), 2 * torch.eye(3))
    tensor(0.)
    """

    __call__: Callable[..., Tensor]

    def forward(self, embeddings: Tensor, teacher: Tensor) -> Tensor:
        return relational_distance_loss(embeddings, teacher)


class RelationalAngle(nn.Module):
    """`relational_angle_loss` as a module, called on embeddings and the teacher's.

    >>> RelationalAngle()(torch.eye(3), 2 * torch.eye(3))
    tensor(0.)
    """

    __call__: Callable[..., Tensor]

    def forward(self, embeddings: Tensor, teacher: Tensor) -> Tensor:
        return relational_angle_loss(embeddings, teacher)
