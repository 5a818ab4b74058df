"""VICReg: two views alike, every dimension in use, no two dimensions the same.

    L = a 1/(N d) sum_i ||x_i - y_i||^2 + b (v(x) + v(y))/2 + c (u(x) + u(y))
    v(x) = 1/d sum_k max(0, 1 - sqrt(C_kk + eps)),   u(x) = 1/d sum_{k != l} C_kl^2

C is the covariance matrix of the dimensions of x over the batch (with N - 1). x and y are two views
of the same N samples; without labels, and without negatives. The embeddings are used as given.

Bardes et al., VICReg: variance-invariance-covariance regularization for self-supervised learning,
ICLR 2022, Eq. 1-6; the mean over dimensions in the first term and the half of the second are those
of the authors' code.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.tensor_ops import full_precision
from kinspace._core.vectors import fill_diagonal

__all__ = ["VICReg", "vicreg_loss"]


@full_precision
@takes_options(
    invariance=checks.at_least(0),
    variance=checks.at_least(0),
    covariance=checks.at_least(0),
    eps=checks.positive,
)
def vicreg_loss(
    first: Tensor,
    second: Tensor,
    *,
    invariance: float = 25.0,
    variance: float = 25.0,
    covariance: float = 1.0,
    eps: float = 1e-4,
) -> Tensor:
    """VICReg loss (module docstring) of two views (batch, dim); a, b, c by their names.

    Equal views, each dimension with the variance 2 and both the same: covariances of 2, squared,
    two in each view, over d = 2.

    >>> import torch
    >>> x = torch.tensor([[1.0, 1.0], [-1.0, -1.0]])
    >>> vicreg_loss(x, x)
    tensor(8.)
    """
    second = checks.paired_rows("second", second, "first", first, same_columns=True)
    apart = (first - second).square().mean()
    (spread, joined), (other_spread, other_joined) = _terms(first, eps), _terms(second, eps)
    value: Tensor = invariance * apart + variance * (spread + other_spread) / 2
    return value + covariance * (joined + other_joined)


def _terms(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """v and u of a view."""
    around = x - x.mean(0)
    matrix = around.T @ around / max(1, len(x) - 1)  # (dim, dim)
    spread = (1 - (matrix.diagonal() + eps).sqrt()).relu().mean()
    return spread, fill_diagonal(matrix, 0.0).square().sum() / x.shape[1]


class VICReg(nn.Module):
    """`vicreg_loss` as a module, called on two views.

    >>> VICReg()
    VICReg(invariance=25.0, variance=25.0, covariance=1.0, eps=0.0001)
    """

    __call__: Callable[..., Tensor]
    extra_repr = options_repr

    def __init__(
        self,
        *,
        invariance: float = 25.0,
        variance: float = 25.0,
        covariance: float = 1.0,
        eps: float = 1e-4,
    ) -> None:
        super().__init__()
        keep_options(
            self, vicreg_loss, invariance=invariance, variance=variance, covariance=covariance,
            eps=eps,
        )  # fmt: skip

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        return vicreg_loss(first, second, **kept_options(self))
