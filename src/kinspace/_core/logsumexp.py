"""Logarithms of sums of exponentials over the last dimension, finite on any finite input."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["log1p_sum_exp", "log_sum_exp"]

LINEAR = 40.0  # log(1 + exp(z)) is z to all digits of float64 from here on


def log_sum_exp(logits: Tensor, mask: Tensor | None = None) -> Tensor:
    """log(sum exp) over the entries of the mask; over none the lowest number, with no gradient.

    Not -inf, whose derivatives are not finite. Added to anything of usual size it stays the lowest.

    >>> log_sum_exp(torch.tensor([[0.0, 1.0], [2.0, 3.0]]), torch.eye(2).bool())
    tensor([0., 3.])
    """
    if mask is not None:
        logits = logits.masked_fill(~mask, torch.finfo(logits.dtype).min)
    return logits.logsumexp(-1)


def log1p_sum_exp(logits: Tensor, mask: Tensor | None = None) -> Tensor:
    """log(1 + sum exp) over the entries of the mask; 0, with no gradient, over none.

    >>> log1p_sum_exp(torch.tensor([[0.0, 0.0, 1000.0]]), torch.tensor([[True, True, False]]))
    tensor([1.0986])
    """
    # a softplus of the sum keeps the digits of a small one
    return functional.softplus(log_sum_exp(logits, mask), threshold=LINEAR)
