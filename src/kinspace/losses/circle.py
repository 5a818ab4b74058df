"""Circle loss: every similarity moves at the pace of its own distance from where it should be.

    z_p = -g a_p (s_p - (1 - m)),   a_p = max(0, 1 + m - s_p)
    z_n =  g a_n (s_n - m),         a_n = max(0, s_n + m)
    L   = mean_i softplus( log sum_p exp(z_p) + log sum_n exp(z_n) )

s is the cosine, the weights a are constants of the gradient, m the margin and g the scale. The mean
is over the anchors that have both a positive and a negative; with reduction "none" others have 0.

Sun et al., Circle loss: a unified perspective of pair similarity optimization, CVPR 2020, Eq. 6.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

from torch import Tensor, nn
from torch.nn import functional

from kinspace._core import checks
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.references import chosen, related
from kinspace._core.samples import Anchors, Chosen, Labels, anchor_weights, takes_weights
from kinspace._core.tensor_ops import LINEAR, REDUCTIONS, log_sum_exp, reduce
from kinspace._core.vectors import cosines

__all__ = ["Circle", "circle_loss"]


@takes_weights
@takes_options(margin=checks.number, scale=checks.positive, reduction=checks.one_of(REDUCTIONS))
def circle_loss(  # noqa: PLR0913 (an option each)
    embeddings: Tensor,
    labels: Labels,
    *,
    margin: float = 0.25,
    scale: float = 256.0,
    reduction: str = "mean",
    pairs: Tensor | None = None,
    triplets: Tensor | None = None,
    reference: Tensor | None = None,
    reference_labels: Labels | None = None,
    includes_batch: bool = False,
    **samples: Unpack[Anchors],
) -> Tensor:
    """Circle loss (module docstring).

    Cosines 1 and 0 with margin 1/4: z_p = -g/16 and z_n = -g/16, so softplus(-2 + log 2) at g = 16.

    >>> import torch
    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> circle_loss(x, torch.tensor([0, 0, 1, 1]), scale=16.0)
    tensor(0.2395)
    """
    reference, index = related(embeddings, labels, reference, reference_labels, includes_batch)
    index = chosen(pairs, triplets, index)
    similarity = cosines(embeddings, reference)  # (batch, batch)
    members, positive = index.positives  # (batch, largest class)
    near = similarity.gather(1, members)
    pull_weight = (1 + margin - near.detach()).relu()
    push_weight = (similarity.detach() + margin).relu()
    pull = log_sum_exp(-scale * pull_weight * (near - (1 - margin)), positive)
    push = log_sum_exp(scale * push_weight * (similarity - margin), index.different)
    terms = functional.softplus(pull + push, threshold=LINEAR)  # 0 where either sum is empty
    weights, both = anchor_weights(samples), positive.any(1) & index.different.any(1)
    return reduce(terms, reduction, weights=both if weights is None else weights * both)


class Circle(nn.Module):
    """`circle_loss` as a module.

    >>> Circle()
    Circle(margin=0.25, scale=256.0, reduction='mean')
    """

    __call__: Callable[..., Tensor]
    extra_repr = options_repr

    def __init__(
        self, *, margin: float = 0.25, scale: float = 256.0, reduction: str = "mean"
    ) -> None:
        super().__init__()
        keep_options(self, circle_loss, margin=margin, scale=scale, reduction=reduction)

    def forward(self, embeddings: Tensor, labels: Labels, **inputs: Unpack[Chosen]) -> Tensor:
        return circle_loss(embeddings, labels, **kept_options(self), **inputs)
