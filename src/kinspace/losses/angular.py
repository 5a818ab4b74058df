"""Angular loss: bounds the angle at the negative of each triangle instead of its sides.

    L = mean_a log(1 + sum_{n: y_n != y_a} exp(4 t (x_a + x_p) . x_n - 2 (1 + t) x_a . x_p))
    t = tan(degrees)^2

p is the next sample of a's class in batch order (cyclic); in a reference, the one that N-pair
takes. A sample alone in its class has term 0 and still counts in the mean. The embeddings are used
as given; the paper normalizes them.

Wang et al., Deep metric learning with angular loss, ICCV 2017.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Unpack

from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.references import compared
from kinspace._core.samples import Anchors, Labels, Reference, takes_samples
from kinspace._core.tensor_ops import REDUCTIONS, log1p_sum_exp, reduce

__all__ = ["Angular", "angular_loss"]


def _acute(name: str, degrees: Any) -> Any:
    degrees = checks.positive(name, degrees)
    if not isinstance(degrees, Tensor) and degrees >= 90:
        raise ValueError(f"{name}: expected less than 90, got {degrees!r}")
    return degrees


@takes_samples
@takes_options(degrees=_acute, reduction=checks.one_of(REDUCTIONS))
def angular_loss(
    embeddings: Tensor,
    labels: Labels,
    *,
    degrees: float = 45.0,
    reduction: str = "mean",
    reference: Tensor | None = None,
    reference_labels: Labels | None = None,
    includes_batch: bool = False,
    **samples: Unpack[Anchors],
) -> Tensor:
    """Angular loss (module docstring).

    At 45 degrees t = 1: negatives have logit 0, the positive 4, so the value is log(1 + 2 e^-4).

    >>> import torch
    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> angular_loss(x, torch.tensor([0, 0, 1, 1]))
    tensor(0.0360)
    """
    reference, index = compared(embeddings, labels, reference, reference_labels, includes_batch)
    radians = degrees * (math.pi / 180)
    tangent = (radians.tan() if isinstance(radians, Tensor) else math.tan(radians)) ** 2
    others = embeddings if reference is None else reference
    partner, paired = index.following
    positives = others[partner]
    negative = 4 * tangent * (embeddings + positives) @ others.T  # (batch, batch)
    positive = 2 * (1 + tangent) * (embeddings * positives).sum(1)
    terms = log1p_sum_exp(negative - positive[:, None], index.different)
    return reduce(terms.masked_fill(~paired, 0.0), reduction)


class Angular(nn.Module):
    """`angular_loss` as a module.

    >>> Angular(degrees=40.0)
    Angular(degrees=40.0, reduction='mean')
    """

    __call__: Callable[..., Tensor]
    extra_repr = options_repr

    def __init__(self, *, degrees: float = 45.0, reduction: str = "mean") -> None:
        super().__init__()
        keep_options(self, angular_loss, degrees=degrees, reduction=reduction)

    def forward(self, embeddings: Tensor, labels: Labels, **inputs: Unpack[Reference]) -> Tensor:
        return angular_loss(embeddings, labels, **kept_options(self), **inputs)
