"""ArcFace: a softmax over classes whose own angle is made larger by a margin.

    L = mean_i -log( exp(s cos(t_i + m)) / (exp(s cos(t_i + m)) + sum_{c != y_i} exp(s cos t_ic)) )

t_ic is the angle of x_i and the weight of class c, t_i that of its own class, m the margin in
radians. cos(t + m) = cos t cos m - sin t sin m, where sin t is the length of what is left of the
unit vector x without its part along w: no arc cosine, whose slope is infinite at 0.

Deng et al., ArcFace: additive angular margin loss for deep face recognition, CVPR 2019, Eq. 3.
Beyond t = pi - m the cosine rises again; the authors' code has other rules there, which are left
out.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Unpack

from torch import Tensor, nn
from torch.nn import functional

from kinspace._core import checks
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.samples import Samples, takes_samples
from kinspace._core.tensor_ops import REDUCTIONS
from kinspace._core.vectors import norms, unit
from kinspace.losses.proxies import new_proxies

__all__ = ["ArcFace", "arcface_loss", "cos_of_sum"]


@takes_samples
@takes_options(scale=checks.positive, margin=checks.number, reduction=checks.one_of(REDUCTIONS))
def arcface_loss(
    embeddings: Tensor,
    labels: Tensor,
    weight: Tensor,
    *,
    scale: float = 64.0,
    margin: float = 0.5,
    reduction: str = "mean",
    **samples: Unpack[Samples],
) -> Tensor:
    """ArcFace loss (module docstring); weight has one row a class.

    An angle of 0 becomes m: log(1 + exp(0 - cos 1/2)) = log(1 + e^-0.8776).

    >>> import torch
    >>> arcface_loss(torch.eye(2), torch.tensor([0, 1]), torch.eye(2), scale=1.0)
    tensor(0.3477)
    """
    weight = checks.matching_rows("weight", weight, embeddings)
    labels = checks.labels(embeddings, labels, len(weight))
    x, weight = unit(embeddings), unit(weight)
    cosines = x @ weight.T  # (batch, classes)
    own = cos_of_sum(x, weight[labels], margin)
    logits = scale * cosines.scatter(1, labels[:, None], own)
    return functional.cross_entropy(logits, labels, reduction=reduction)


def cos_of_sum(x: Tensor, y: Tensor, margin: float | Tensor) -> Tensor:
    """cos(t + margin) of the angles t of paired unit vectors, (rows, 1)."""
    cosine = (x * y).sum(1, keepdim=True)
    sine = norms(x - cosine * y)
    if isinstance(margin, Tensor):
        return cosine * margin.cos() - sine * margin.sin()
    return cosine * math.cos(margin) - sine * math.sin(margin)


class ArcFace(nn.Module):
    """`arcface_loss` with its weight. Give it to the optimizer too.

    >>> ArcFace(num_classes=3, dim=2)
    ArcFace(scale=64.0, margin=0.5, reduction='mean')
    """

    __call__: Callable[..., Tensor]
    extra_repr = options_repr

    def __init__(
        self,
        num_classes: int,
        dim: int,
        *,
        scale: float = 64.0,
        margin: float = 0.5,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        keep_options(self, arcface_loss, scale=scale, margin=margin, reduction=reduction)
        self.weight = new_proxies(num_classes, dim)

    @property
    def proxies(self) -> Tensor:
        """One vector a class: the rows of the weight."""
        return self.weight

    def forward(self, embeddings: Tensor, labels: Tensor, **samples: Unpack[Samples]) -> Tensor:
        return arcface_loss(embeddings, labels, self.weight, **kept_options(self), **samples)
