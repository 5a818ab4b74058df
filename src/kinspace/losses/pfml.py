"""PFML, a potential field: each point attracts its class and repels the others, more when near.

    attraction(r, z) = -1 / max(|r - z|, delta)^alpha
    repulsion(r, z)  =  1 / min(|r - z|, delta)^alpha
    field_c(r)       = sum_{z of class c} attraction(r, z) + sum_{z of others} repulsion(r, z)
    L                = mean of field_c(r) over all points r, of class c

The points are the samples and several centers a class, its proxies, at length 1. Attraction fades
with distance, so that a sample pulls at its neighbors of the class and not at its far side, and
ends within delta, so that a class does not collapse. Repulsion acts within delta only. No point
acts on itself.

Eq. 6 has the sum over the points; here it is the mean over all ordered pairs of points, whose scale
is the same for any batch. Repulsion is infinite where points of two classes meet: distances below
`eps` count as `eps` there, and push no more.

Bhatnagar and Ahuja, Potential field based deep metric learning, CVPR 2025, Eq. 1, 2 and 6.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.samples import Samples, takes_samples
from kinspace._core.vectors import euclidean_distances, fill_diagonal, unit
from kinspace.losses.proxies import new_centers

__all__ = ["PFML", "pfml_loss"]


@takes_samples
@takes_options(alpha=checks.positive, delta=checks.positive, eps=checks.positive)
def pfml_loss(
    embeddings: Tensor,
    labels: Tensor,
    centers: Tensor,
    *,
    alpha: float = 4.0,
    delta: float = 0.2,
    eps: float = 0.02,
    **samples: Unpack[Samples],
) -> Tensor:
    """PFML loss (module docstring); centers are (classes, K, dim).

    Two of six pairs are of a class, at distance 0: -1 / 0.5. Four are farther apart: 1 / 0.5.

    >>> x = torch.eye(2)
    >>> pfml_loss(x, torch.tensor([0, 1]), x[:, None], alpha=1.0, delta=0.5)
    tensor(0.6667)
    """
    centers = checks.matching_centers("centers", centers, embeddings)
    labels = checks.labels(embeddings, labels, len(centers))
    classes = torch.arange(len(centers), device=labels.device)
    of_points = torch.cat([labels, classes.repeat_interleave(centers.shape[1])])
    points = unit(torch.cat([embeddings, centers.flatten(0, 1)]))  # (points, dim)
    distances = euclidean_distances(points)
    attraction = -distances.clamp(min=delta).pow(-alpha)
    repulsion = distances.clamp(min=eps).clamp(max=delta).pow(-alpha)
    energies = torch.where(of_points[:, None] == of_points, attraction, repulsion)
    return fill_diagonal(energies, 0.0).sum() / (len(points) * max(1, len(points) - 1))


class PFML(nn.Module):
    """`pfml_loss` with its centers. Give them to the optimizer too, at 100 times the rate.

    >>> [tuple(p.shape) for p in PFML(num_classes=3, dim=2).parameters()]
    [(3, 15, 2)]
    """

    __call__: Callable[..., Tensor]
    extra_repr = options_repr

    def __init__(
        self,
        num_classes: int,
        dim: int,
        *,
        centers: int = 15,
        alpha: float = 4.0,
        delta: float = 0.2,
        eps: float = 0.02,
    ) -> None:
        super().__init__()
        keep_options(self, pfml_loss, alpha=alpha, delta=delta, eps=eps)
        self.centers = new_centers(num_classes, centers, dim)

    def forward(self, embeddings: Tensor, labels: Tensor, **samples: Unpack[Samples]) -> Tensor:
        return pfml_loss(embeddings, labels, self.centers, **kept_options(self), **samples)
