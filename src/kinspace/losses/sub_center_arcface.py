"""Sub-center ArcFace: ArcFace with several centers a class, of which the nearest counts.

    cos t_ic = max_k cos(x_i, w_ck),   then the softmax of ArcFace, cos(t + m) for the own class

Noisy and odd samples of a class gather at a center of their own and no longer pull at the others.

Deng et al., Sub-center ArcFace: boosting face recognition by large-scale noisy web faces, ECCV
2020, Eq. 3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

from torch import Tensor, nn
from torch.nn import functional

from kinspace._core import checks
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.samples import Samples, takes_samples
from kinspace._core.tensor_ops import REDUCTIONS
from kinspace._core.vectors import unit
from kinspace.losses.arcface import cos_of_sum
from kinspace.losses.proxies import new_centers

__all__ = ["SubCenterArcFace", "sub_center_arcface_loss"]


@takes_samples
@takes_options(scale=checks.positive, margin=checks.number, reduction=checks.one_of(REDUCTIONS))
def sub_center_arcface_loss(
    embeddings: Tensor,
    labels: Tensor,
    centers: Tensor,
    *,
    scale: float = 64.0,
    margin: float = 0.5,
    reduction: str = "mean",
    **samples: Unpack[Samples],
) -> Tensor:
    """Sub-center ArcFace loss (module docstring); centers are (classes, K, dim).

    Each sample lies at one of the two centers of its class, as in the example of ArcFace:

    >>> import torch
    >>> centers = torch.stack([torch.eye(2)[[0, 0]], torch.eye(2)[[1, 1]]])
    >>> sub_center_arcface_loss(torch.eye(2), torch.tensor([0, 1]), centers, scale=1.0)
    tensor(0.3477)
    """
    centers = checks.matching_centers("centers", centers, embeddings)
    labels = checks.labels(embeddings, labels, len(centers))
    x, centers = unit(embeddings), unit(centers)
    cosines, nearest = (x @ centers.flatten(0, 1).T).unflatten(1, centers.shape[:2]).max(2)
    own = centers[labels, nearest.gather(1, labels[:, None])[:, 0]]  # (batch, dim)
    cosines = cosines.scatter(1, labels[:, None], cos_of_sum(x, own, margin))  # (batch, classes)
    return functional.cross_entropy(scale * cosines, labels, reduction=reduction)


class SubCenterArcFace(nn.Module):
    """`sub_center_arcface_loss` with its centers. Give them to the optimizer too.

    >>> [tuple(p.shape) for p in SubCenterArcFace(num_classes=3, dim=2).parameters()]
    [(3, 3, 2)]
    """

    __call__: Callable[..., Tensor]
    extra_repr = options_repr

    def __init__(
        self,
        num_classes: int,
        dim: int,
        *,
        centers: int = 3,
        scale: float = 64.0,
        margin: float = 0.5,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        keep_options(self, sub_center_arcface_loss, scale=scale, margin=margin, reduction=reduction)
        self.centers = new_centers(num_classes, centers, dim)

    def forward(self, embeddings: Tensor, labels: Tensor, **samples: Unpack[Samples]) -> Tensor:
        return sub_center_arcface_loss(
            embeddings, labels, self.centers, **kept_options(self), **samples
        )
