"""Divergence: the learners of one embedding should see different things in the same picture.

    R = mean_i mean_{p < q} max(0, margin - ||g_ip - g_iq||^2)

g_ip is the p-th group of dimensions of sample i (`kinspace.learners`) at length 1. One learner: 0.
Where the groups are not of one size, the shorter ones count as ending in zeros, so that any
dimension will do (our choice).

The divergence loss of Kim et al., Attention-based ensemble for deep metric learning, ECCV 2018
(arXiv 1804.00382), with the margin 1 and the eight learners of ABE-8, after a summary of the paper;
the mean is our choice. In ABE the learners share the embedding layer and differ by masks on a
middle feature map: those of a model with `attention` (`kinspace.models.ensembles`). Groups of one
embedding layer have nothing in common that would keep them alike.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from kinspace import checks
from kinspace.learners import checked_groups, group_sizes, stacked, unstacked
from kinspace.numerics import full_precision
from kinspace.slopes import unit_with_pull, with_slopes

__all__ = ["Divergence", "divergence"]


@full_precision
def divergence(
    embeddings: Tensor, *, groups: int | tuple[int, ...] = 8, margin: float = 1.0
) -> Tensor:
    """Divergence of the learners (module docstring).

    Two learners at a squared distance of 2 - 2 * 0.6:

    >>> divergence(torch.tensor([[1.0, 0.0, 3.0, 4.0]]), groups=2)
    tensor(0.2000)
    """
    checks.vectors("embeddings", embeddings)
    checks.finite("margin", margin)
    sizes = group_sizes(groups, embeddings.shape[1])
    value, slope = _value_and_slope(embeddings, sizes, margin)
    return with_slopes(value, (embeddings, slope))


@torch.no_grad()
def _value_and_slope(
    embeddings: Tensor, sizes: list[int], margin: float
) -> tuple[Tensor, Callable[[], Tensor]]:
    x, pull = unit_with_pull(stacked(embeddings, sizes))  # (batch, learners, size)
    lengths = torch.linalg.vector_norm(x, dim=2, keepdim=True)  # 1, or 0 of zeros
    hinges = (margin - lengths) - lengths.mT  # (batch, learners, learners), each pair twice
    hinges.baddbmm_(x, x.mT, alpha=2).relu_().diagonal(dim1=1, dim2=2).zero_()
    pairs = max(1, len(x) * len(sizes) * (len(sizes) - 1))

    def slope() -> Tensor:
        # by the products alone: the lengths stay as they are
        weights = hinges.sign_().mul_(4 / pairs)
        return unstacked(pull(weights @ x), sizes)

    return hinges.sum() / pairs, slope


class Divergence(nn.Module):
    """`divergence` as a module; labels are taken and not used, as in every regularizer.

    >>> Divergence(groups=4)
    Divergence(groups=4, margin=1.0)
    """

    def __init__(self, *, groups: int | tuple[int, ...] = 8, margin: float = 1.0) -> None:
        super().__init__()
        self.groups = checked_groups(groups)
        self.margin = checks.finite("margin", margin)

    def forward(self, embeddings: Tensor, labels: Tensor | None = None) -> Tensor:
        return divergence(embeddings, groups=self.groups, margin=self.margin)

    def extra_repr(self) -> str:
        return f"groups={self.groups}, margin={self.margin}"
