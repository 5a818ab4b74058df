"""Ranked list loss: positives within a ball around each sample, near negatives outside of it.

    L   = mean_i ( (1 - w) mean_{p in P*_i} (D_ip - (a - m)) + w sum_{n in N*_i} q_in (a - D_in) )
    q_i = softmax_{n in N*_i}( T (a - D_in) )

D is the plain distance of unit vectors, a the boundary, m the margin. P*_i are the positives
farther than a - m, N*_i the negatives nearer than a; a mean or sum over none is 0. The weights q,
larger for nearer negatives, are constants of the gradient. w is the balance of both parts.

Wang et al., Ranked list loss for deep metric learning, CVPR 2019.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.references import related
from kinspace._core.samples import Anchors, Labels, Reference, takes_samples
from kinspace._core.tensor_ops import REDUCTIONS, reduce
from kinspace._core.vectors import euclidean_distances, unit

__all__ = ["RankedList", "ranked_list_loss"]


@takes_samples
@takes_options(
    margin=checks.number,
    boundary=checks.number,
    temperature=checks.positive,
    balance=checks.at_least(0),
    reduction=checks.one_of(REDUCTIONS),
)
def ranked_list_loss(  # noqa: PLR0913 (an option each)
    embeddings: Tensor,
    labels: Labels,
    *,
    margin: float = 0.4,
    boundary: float = 1.2,
    temperature: float = 10.0,
    balance: float = 0.5,
    reduction: str = "mean",
    reference: Tensor | None = None,
    reference_labels: Labels | None = None,
    includes_batch: bool = False,
    **samples: Unpack[Anchors],
) -> Tensor:
    """Ranked list loss (module docstring).

    The positive is at distance 1.4142, 0.6142 beyond the boundary less the margin; the negative of
    the first sample at 0, of the second at 1.4142, of the third both: 1.2 times softmax(12, -2.1).

    >>> import torch
    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    >>> ranked_list_loss(x, torch.tensor([0, 0, 1]), reduction="none")
    tensor([0.9071, 0.3071, 0.6000])
    """
    reference, index = related(embeddings, labels, reference, reference_labels, includes_batch)
    x, y = unit(embeddings), None if reference is None else unit(reference)
    distances = euclidean_distances(x, y)  # (batch, batch)
    members, positive = index.positives  # (batch, largest class)
    far = distances.gather(1, members) - (boundary - margin)
    outside = positive & ~(far <= 0)  # NaN is kept
    pull = far.masked_fill(~outside, 0.0).sum(1) / outside.sum(1).clamp(min=1)
    near = boundary - distances
    inside = index.different & ~(near <= 0)
    weights = near.detach().mul(temperature)
    weights = weights.masked_fill(~inside, torch.finfo(near.dtype).min).softmax(1)
    push = (weights * near.masked_fill(~inside, 0.0)).sum(1)
    return reduce((1 - balance) * pull + balance * push, reduction)


class RankedList(nn.Module):
    """`ranked_list_loss` as a module.

    >>> RankedList()
    RankedList(margin=0.4, boundary=1.2, temperature=10.0, balance=0.5, reduction='mean')
    """

    __call__: Callable[..., Tensor]
    extra_repr = options_repr

    def __init__(
        self,
        *,
        margin: float = 0.4,
        boundary: float = 1.2,
        temperature: float = 10.0,
        balance: float = 0.5,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        keep_options(
            self, ranked_list_loss, margin=margin, boundary=boundary, temperature=temperature,
            balance=balance, reduction=reduction,
        )  # fmt: skip

    def forward(self, embeddings: Tensor, labels: Labels, **inputs: Unpack[Reference]) -> Tensor:
        return ranked_list_loss(embeddings, labels, **kept_options(self), **inputs)
