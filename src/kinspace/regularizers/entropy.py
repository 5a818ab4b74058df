"""Entropy: the embeddings as spread out as a kernel-density estimate of their entropy can tell.

    R = mean_i log( 1/(N-1) sum_{j != i} exp(-||f_i - f_j||^2 / (2 h^2)) )

the negative entropy up to a constant, h the bandwidth. One sample alone: 0.

The DML-DA paper compares with an entropy regularizer (EN) without giving a formula. This
resubstitution estimate is our choice.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.tensor_ops import full_precision, zero_with_grad
from kinspace._core.vectors import fill_diagonal, squared_distances

__all__ = ["Entropy", "entropy"]


@full_precision
@takes_options(bandwidth=checks.positive)
def entropy(embeddings: Tensor, *, bandwidth: float = 1.0) -> Tensor:
    """Negative kernel-density entropy (module docstring).

    >>> import torch
    >>> entropy(torch.tensor([[0.0], [2.0]]))
    tensor(-2.)
    """
    checks.vectors("embeddings", embeddings)
    if len(embeddings) == 1:
        return zero_with_grad(embeddings)
    logits = squared_distances(embeddings) * (-0.5 / bandwidth**2)  # (batch, batch)
    logs = fill_diagonal(logits, -math.inf).logsumexp(1)
    return logs.mean() - math.log(len(embeddings) - 1)


class Entropy(nn.Module):
    """`entropy` as a module; labels are taken and not used, as every regularizer may be given them.

    >>> Entropy(bandwidth=0.5)
    Entropy(bandwidth=0.5)
    """

    __call__: Callable[..., Tensor]
    takes = "embeddings"
    extra_repr = options_repr

    def __init__(self, *, bandwidth: float = 1.0) -> None:
        super().__init__()
        keep_options(self, entropy, bandwidth=bandwidth)

    def forward(self, embeddings: Tensor, labels: Tensor | None = None) -> Tensor:
        return entropy(embeddings, **kept_options(self))
