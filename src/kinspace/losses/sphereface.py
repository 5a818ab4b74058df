"""SphereFace: a softmax over classes whose own angle is multiplied (A-softmax).

    L = mean_i -log( exp(z_i) / (exp(z_i) + sum_{c != y_i} exp(|x_i| cos t_ic)) )
    z_i = |x_i| psi(t_i)
    psi(t) = (-1)^k cos(m t) - 2k,   k = min(floor(m t / pi), m - 1)

t_ic is the angle of x_i and the weight of class c, t_i that of its own class, m the multiplier. The
weights have length 1, the embeddings are used as given: their length is the scale.

Liu et al., SphereFace: deep hypersphere embedding for face recognition, CVPR 2017, Eq. 7. The
authors begin training with a plain softmax and move to psi slowly, which is left to the caller.
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
from kinspace._core.vectors import cosines, norms
from kinspace.losses.fixed_margin import psi
from kinspace.losses.proxies import new_proxies

__all__ = ["SphereFace", "sphereface_loss"]


@takes_samples
@takes_options(multiplier=checks.whole(1), reduction=checks.one_of(REDUCTIONS))
def sphereface_loss(
    embeddings: Tensor,
    labels: Tensor,
    weight: Tensor,
    *,
    multiplier: int = 4,
    reduction: str = "mean",
    **samples: Unpack[Samples],
) -> Tensor:
    """SphereFace loss (module docstring); weight has one row a class.

    At an angle of 0 psi is 1: log(1 + 1/e).

    >>> import torch
    >>> sphereface_loss(torch.eye(2), torch.tensor([0, 1]), torch.eye(2))
    tensor(0.3133)
    """
    weight = checks.matching_rows("weight", weight, embeddings)
    labels = checks.labels(embeddings, labels, len(weight))
    cosine = cosines(embeddings, weight)  # (batch, classes)
    own = psi(cosine.gather(1, labels[:, None]), multiplier)  # (batch, 1)
    logits = norms(embeddings) * cosine.scatter(1, labels[:, None], own)
    return functional.cross_entropy(logits, labels, reduction=reduction)


class SphereFace(nn.Module):
    """`sphereface_loss` with its weight. Give it to the optimizer too.

    >>> SphereFace(num_classes=3, dim=2)
    SphereFace(multiplier=4, reduction='mean')
    """

    __call__: Callable[..., Tensor]
    extra_repr = options_repr

    def __init__(
        self, num_classes: int, dim: int, *, multiplier: int = 4, reduction: str = "mean"
    ) -> None:
        super().__init__()
        keep_options(self, sphereface_loss, multiplier=multiplier, reduction=reduction)
        self.weight = new_proxies(num_classes, dim)

    @property
    def proxies(self) -> Tensor:
        """One vector a class: the rows of the weight."""
        return self.weight

    def forward(self, embeddings: Tensor, labels: Tensor, **samples: Unpack[Samples]) -> Tensor:
        return sphereface_loss(embeddings, labels, self.weight, **kept_options(self), **samples)
