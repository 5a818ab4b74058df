"""Tuplet margin loss: a positive against all negatives at once, its angle given a slack.

    L = mean_i 1/|P_i| sum_{p in P_i} log(1 + sum_n exp(s (cos t_in - cos(t_ip - b))))

t is the angle, b the slack in radians, s the scale; n are the negatives of i. The slack makes a
positive that is nearly there count as if it were nearer by b, so that classes keep some width.
sin t is half the product of |x - y| and |x + y|. A sample without a positive or without a negative
has term 0 and still counts in the mean.

Yu and Tao, Deep metric learning with tuplet margin loss, ICCV 2019, Eq. 3; without its second part,
the variance of the positive and negative pairs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional

from kinspace._core import checks
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.references import chosen, related
from kinspace._core.samples import Anchors, Chosen, Labels, takes_samples
from kinspace._core.tensor_ops import LINEAR, REDUCTIONS, log_sum_exp, reduce
from kinspace._core.vectors import paired_distances, unit

__all__ = ["TupletMargin", "tuplet_margin_loss"]


@takes_samples
@takes_options(scale=checks.positive, slack=checks.number, reduction=checks.one_of(REDUCTIONS))
def tuplet_margin_loss(  # noqa: PLR0913 (an option each)
    embeddings: Tensor,
    labels: Labels,
    *,
    scale: float = 64.0,
    slack: float = 0.1,
    reduction: str = "mean",
    pairs: Tensor | None = None,
    triplets: Tensor | None = None,
    reference: Tensor | None = None,
    reference_labels: Labels | None = None,
    includes_batch: bool = False,
    **samples: Unpack[Anchors],
) -> Tensor:
    """Tuplet margin loss (module docstring).

    Each of the first two samples has a positive at angle 0 and a negative at a right angle:
    log(1 + exp(0 - cos(0.1))), and the third has no positive.

    >>> import torch
    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> tuplet_margin_loss(x, torch.tensor([0, 0, 1]), scale=1.0)
    tensor(0.2097)
    """
    reference, index = related(embeddings, labels, reference, reference_labels, includes_batch)
    index = chosen(pairs, triplets, index)
    x, y = unit(embeddings), None if reference is None else unit(reference)
    cosine = x @ (x if y is None else y).T  # (batch, batch)
    members, positive = index.positives  # (batch, largest class)
    near = _cos_of_difference(x, x if y is None else y, members, slack)
    push = log_sum_exp(scale * cosine, index.different)  # (batch,)
    terms = functional.softplus(push[:, None] - scale * near, threshold=LINEAR)
    terms = terms.masked_fill(~positive, 0.0).sum(1)
    return reduce(terms / positive.sum(1).clamp(min=1), reduction)


def _cos_of_difference(x: Tensor, y: Tensor, members: Tensor, slack: float | Tensor) -> Tensor:
    """cos(t - slack) of the angles to listed rows of y, (batch, some)."""
    itself = torch.arange(len(x), device=x.device)[:, None].expand_as(members)
    chord = paired_distances(x, itself, members, y)
    sine = chord * paired_distances(x, itself, members, -y) / 2
    cosine = 1 - chord.square() / 2
    if isinstance(slack, Tensor):
        return cosine * slack.cos() + sine * slack.sin()
    return cosine * math.cos(slack) + sine * math.sin(slack)


class TupletMargin(nn.Module):
    """`tuplet_margin_loss` as a module.

    >>> TupletMargin()
    TupletMargin(scale=64.0, slack=0.1, reduction='mean')
    """

    __call__: Callable[..., Tensor]
    extra_repr = options_repr

    def __init__(self, *, scale: float = 64.0, slack: float = 0.1, reduction: str = "mean") -> None:
        super().__init__()
        keep_options(self, tuplet_margin_loss, scale=scale, slack=slack, reduction=reduction)

    def forward(self, embeddings: Tensor, labels: Labels, **inputs: Unpack[Chosen]) -> Tensor:
        return tuplet_margin_loss(embeddings, labels, **kept_options(self), **inputs)
