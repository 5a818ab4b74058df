"""Circle loss: every similarity moves at the pace of its own distance from where it should be.

    z_p = -g a_p (s_p - (1 - m)),   a_p = max(0, 1 + m - s_p)
    z_n =  g a_n (s_n - m),         a_n = max(0, s_n + m)
    L   = mean_i softplus( log sum_p exp(z_p) + log sum_n exp(z_n) )

s is the cosine, the weights a are constants of the gradient, m the margin and g the scale. The mean
is over the anchors that have both a positive and a negative.

Sun et al., Circle loss: a unified perspective of pair similarity optimization, CVPR 2020, Eq. 6.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from kinspace import checks
from kinspace.numerics import full_precision
from kinspace.pairs import class_table
from kinspace.slopes import exponentials_, unit_with_pull, with_slopes

__all__ = ["Circle", "circle_loss"]


@full_precision
def circle_loss(
    embeddings: Tensor, labels: Tensor, *, margin: float = 0.25, scale: float = 256.0
) -> Tensor:
    """Circle loss (module docstring).

    Cosines 1 and 0 with margin 1/4: z_p = -g/16 and z_n = -g/16, so softplus(-2 + log 2) at g = 16.

    >>> import torch
    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> circle_loss(x, torch.tensor([0, 0, 1, 1]), scale=16.0)
    tensor(0.2395)
    """
    labels = checks.with_labels(embeddings, labels, read=False)
    checks.finite("margin", margin)
    checks.positive("scale", scale)
    value, slope = _value_and_slope(embeddings, labels, margin, scale)
    return with_slopes(value, (embeddings, slope))


@torch.no_grad()
def _value_and_slope(
    embeddings: Tensor, labels: Tensor, margin: float, scale: float
) -> tuple[Tensor, Callable[[], Tensor]]:
    x, pull_back = unit_with_pull(embeddings)
    cosines = x @ x.T
    index, positive = class_table(labels)
    similar = cosines.gather(1, index)  # (batch, class)
    pull_pace = (1 + margin - similar).relu_().mul_(-scale)
    pulls = similar.sub_(1 - margin).mul_(pull_pace).masked_fill_(~positive, -math.inf)
    push_pace = (cosines + margin).relu_().mul_(scale)
    pushes = cosines.sub_(margin).mul_(push_pace).scatter_(1, index, -math.inf)
    pull_sums, pull = exponentials_(pulls)
    push_sums, push = exponentials_(pushes)
    total = pull + push  # (batch, 1); -inf without a positive or without a negative
    count = (total > -math.inf).sum().clamp_(min=1)

    def slope() -> Tensor:
        share = torch.sigmoid(total) / count
        pushes.mul_(push_pace).mul_(share / push_sums)
        pushes.scatter_add_(1, index, pulls.mul_(pull_pace).mul_(share / pull_sums))
        return pull_back((pushes + pushes.T) @ x)

    return functional.softplus(total).sum() / count, slope


class Circle(nn.Module):
    """`circle_loss` as a module.

    >>> Circle()
    Circle(margin=0.25, scale=256.0)
    """

    def __init__(self, *, margin: float = 0.25, scale: float = 256.0) -> None:
        super().__init__()
        self.margin = checks.finite("margin", margin)
        self.scale = checks.positive("scale", scale)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return circle_loss(embeddings, labels, margin=self.margin, scale=self.scale)

    def extra_repr(self) -> str:
        return f"margin={self.margin}, scale={self.scale}"
