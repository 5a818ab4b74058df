"""Sigmoid loss of pairs: each pair of a query and a key is right or wrong by itself.

    L = -1/N sum_i sum_j log sigmoid( z_ij (scale s_ij + bias) ),   z_ij = 1 for i = j, -1 otherwise

s_ij is the cosine of query i and key j; row i of the keys is the positive of row i of the queries.
No softmax over the batch: a large bias makes up for the many wrong pairs at the start.

Zhai et al., Sigmoid loss for language image pre-training, ICCV 2023, Algorithm 1. There scale and
bias are learnt: pass parameters. (The paper learns the logarithm of the scale.)
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from kinspace._core import checks
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.tensor_ops import LINEAR, REDUCTIONS, full_precision, reduce
from kinspace._core.vectors import cosines

__all__ = ["SigmoidPair", "sigmoid_pair_loss"]


@full_precision
@takes_options(scale=checks.positive, bias=checks.number, reduction=checks.one_of(REDUCTIONS))
def sigmoid_pair_loss(
    queries: Tensor,
    keys: Tensor,
    *,
    scale: float = 10.0,
    bias: float = -10.0,
    reduction: str = "mean",
) -> Tensor:
    """Sigmoid loss of pairs (module docstring).

    Right pairs have logit 1 and wrong ones 0: log(1 + 1/e) + log 2.

    >>> sigmoid_pair_loss(torch.eye(2), torch.eye(2), scale=1.0, bias=0.0)
    tensor(1.0064)
    """
    keys = checks.paired_rows("keys", keys, "queries", queries, same_columns=True)
    logits = scale * cosines(queries, keys) + bias  # (batch, batch)
    right = torch.eye(len(logits), dtype=torch.bool, device=logits.device)
    terms = functional.softplus(torch.where(right, -logits, logits), threshold=LINEAR)
    return reduce(terms.sum(1), reduction)


class SigmoidPair(nn.Module):
    """`sigmoid_pair_loss` as a module, called on queries and keys.

    >>> scale, bias = nn.Parameter(torch.tensor(10.0)), nn.Parameter(torch.tensor(-10.0))
    >>> len(list(SigmoidPair(scale=scale, bias=bias).parameters()))
    2
    """

    __call__: Callable[..., Tensor]
    extra_repr = options_repr

    def __init__(
        self, *, scale: float = 10.0, bias: float = -10.0, reduction: str = "mean"
    ) -> None:
        super().__init__()
        keep_options(self, sigmoid_pair_loss, scale=scale, bias=bias, reduction=reduction)

    def forward(self, queries: Tensor, keys: Tensor) -> Tensor:
        return sigmoid_pair_loss(queries, keys, **kept_options(self))
