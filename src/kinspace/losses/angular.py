"""Angular loss: bounds the angle at the negative of each triangle instead of its sides.

    L = mean_a log(1 + sum_{n: y_n != y_a} exp(4 t (x_a + x_p) . x_n - 2 (1 + t) x_a . x_p))
    t = tan(degrees)^2

p is the next sample of a's class in batch order (cyclic). A sample alone in its class has term 0
and still counts in the mean. The embeddings are used as given; the paper normalizes them.

Wang et al., Deep metric learning with angular loss, ICCV 2017.
"""

from __future__ import annotations

import math

from torch import Tensor, nn

from kinspace import checks
from kinspace.losses.n_pair import anchored_softmax
from kinspace.numerics import full_precision
from kinspace.pairs import class_table, next_same

__all__ = ["Angular", "angular_loss"]


@full_precision
def angular_loss(embeddings: Tensor, labels: Tensor, *, degrees: float = 45.0) -> Tensor:
    """Angular loss (module docstring).

    At 45 degrees t = 1: negatives have logit 0, the positive 4, so the value is log(1 + 2 e^-4).

    >>> import torch
    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> angular_loss(x, torch.tensor([0, 0, 1, 1]))
    tensor(0.0360)
    """
    labels = checks.with_labels(embeddings, labels, read=False)
    slope = math.tan(math.radians(_acute(degrees))) ** 2
    index, real = class_table(labels)
    partner, has_positive = next_same(index, real)
    partners = embeddings.index_select(0, partner)
    positive = 2 * (1 + slope) * (embeddings * partners).sum(1)
    anchors = 4 * slope * (embeddings + partners)
    terms = anchored_softmax(anchors, embeddings, positive, index)
    return (terms * has_positive).mean()


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
