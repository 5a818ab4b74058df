"""Angular loss: bounds the angle at the negative of each triangle instead of its sides.

    L = mean_a log(1 + sum_{n: y_n != y_a} exp(4 t (x_a + x_p) . x_n - 2 (1 + t) x_a . x_p))
    t = tan(degrees)^2

p is the next sample of a's class in batch order (cyclic). A sample alone in its class has term 0
and still counts in the mean. The embeddings are used as given; the paper normalizes them.

Wang et al., Deep metric learning with angular loss, ICCV 2017.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from kinspace import checks
from kinspace.numerics import full_precision
from kinspace.pairs import next_same
from kinspace.slopes import exponentials_, with_slopes

__all__ = ["Angular", "angular_loss"]


@full_precision
def angular_loss(embeddings: Tensor, labels: Tensor, *, degrees: float = 45.0) -> Tensor:
    """Angular loss (module docstring).

    At 45 degrees t = 1: negatives have logit 0, the positive 4, so the value is log(1 + 2 e^-4).

    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> angular_loss(x, torch.tensor([0, 0, 1, 1]))
    tensor(0.0360)
    """
    labels = checks.with_labels(embeddings, labels, read=False)
    tangent = math.tan(math.radians(_acute(degrees))) ** 2
    value, slope = _value_and_slope(embeddings, labels, tangent)
    return with_slopes(value, (embeddings, slope))


@torch.no_grad()
def _value_and_slope(
    x: Tensor, labels: Tensor, tangent: float
) -> tuple[Tensor, Callable[[], Tensor]]:
    index, partner, paired = next_same(labels)
    partners = x.index_select(0, partner)
    anchors = (x + partners).mul_(4 * tangent)
    own = (x * partners).sum(1, keepdim=True).mul_(-2 * (1 + tangent))
    logits = torch.addmm(own, anchors, x.T).scatter_(1, index, -math.inf)
    sums, terms = exponentials_(logits, plus_one=True)
    paired = paired[:, None]

    def slope() -> Tensor:
        weights = logits.mul_(paired / sums.mul_(len(x)))
        pull = weights.sum(1, keepdim=True).mul_(-2 * (1 + tangent))
        by_anchors = (weights @ x).mul_(4 * tangent)
        by_partners = torch.addcmul(by_anchors, pull, x)
        grad = torch.addmm(by_anchors, weights.T, anchors).addcmul_(pull, partners)
        return grad.index_add_(0, partner, by_partners)

    return terms.mul_(paired).mean(), slope


def _acute(degrees: float) -> float:
    checks.positive("degrees", degrees)
    if degrees >= 90:
        raise ValueError(f"degrees: expected less than 90, got {degrees!r}")
    return degrees


class Angular(nn.Module):
    """`angular_loss` as a module.

    >>> Angular(degrees=40.0)
    Angular(degrees=40.0)
    """

    def __init__(self, *, degrees: float = 45.0) -> None:
        super().__init__()
        self.degrees = _acute(degrees)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return angular_loss(embeddings, labels, degrees=self.degrees)

    def extra_repr(self) -> str:
        return f"degrees={self.degrees}"
