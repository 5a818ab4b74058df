"""Barlow Twins: the dimensions of two views correlate each with itself and with no other.

    L = sum_k (1 - C_kk)^2 + w sum_{k != l} C_kl^2

C_kl is the correlation over the batch of dimension k of the first view and dimension l of the
second: the cosine of the two columns, each around its mean. A column that does not vary has
correlation 0. The views are of the same samples; without labels, and without negatives.

Zbontar et al., Barlow Twins: self-supervised learning via redundancy reduction, ICML 2021, Eq. 1-2.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.tensor_ops import full_precision
from kinspace._core.vectors import cosines, fill_diagonal

__all__ = ["BarlowTwins", "barlow_twins_loss"]


@full_precision
@takes_options(redundancy=checks.at_least(0))
def barlow_twins_loss(first: Tensor, second: Tensor, *, redundancy: float = 5e-3) -> Tensor:
    """Barlow Twins loss (module docstring) of two views (batch, dim); w is the redundancy.

    Equal views, both dimensions the same: all four correlations are 1.

    >>> import torch
    >>> x = torch.tensor([[1.0, 1.0], [-1.0, -1.0]])
    >>> barlow_twins_loss(x, x)
    tensor(0.0100)
    """
    second = checks.paired_rows("second", second, "first", first, same_columns=True)
    columns, others = (first - first.mean(0)).T, (second - second.mean(0)).T
    correlation = cosines(columns, others)  # (dim, dim)
    own = (1 - correlation.diagonal()).square().sum()
    rest: Tensor = redundancy * fill_diagonal(correlation, 0.0).square().sum()
    return own + rest


class BarlowTwins(nn.Module):
    """`barlow_twins_loss` as a module, called on two views.

    >>> BarlowTwins()
    BarlowTwins(redundancy=0.005)
    """

    __call__: Callable[..., Tensor]
    extra_repr = options_repr

    def __init__(self, *, redundancy: float = 5e-3) -> None:
        super().__init__()
        keep_options(self, barlow_twins_loss, redundancy=redundancy)

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        return barlow_twins_loss(first, second, **kept_options(self))
