"""Divergence: the learners of one embedding should see different things in the same picture.

    R = mean_i mean_{p < q} max(0, margin - ||g_ip - g_iq||^2)

g_ip is the p-th group of dimensions of sample i (`kinspace.learners`) at length 1. One learner: 0.
Where the groups are not of one size, the shorter ones count as ending in zeros, so that any
dimension will do (our choice).

The divergence loss of Kim et al., Attention-based ensemble for deep metric learning, ECCV 2018
(arXiv 1804.00382), with the margin 1 and the eight learners of ABE-8, after a summary of the paper;
the mean is our choice. In ABE the learners share the embedding layer and differ by masks on a
middle feature map, which are not here: groups of one embedding layer have nothing in common that
would keep them alike.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from kinspace import checks
from kinspace.learners import checked_groups, group_sizes
from kinspace.numerics import full_precision, unit

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
    learners = torch.stack(
        [
            functional.pad(unit(part), (0, max(sizes) - part.shape[1]))
            for part in embeddings.split(sizes, 1)
        ],
        1,
    )  # (batch, learners, size)
    products = learners @ learners.mT  # (batch, learners, learners)
    lengths = products.diagonal(dim1=1, dim2=2)
    apart = lengths[:, None] + lengths[..., None] - 2 * products
    pairs = len(embeddings) * len(sizes) * (len(sizes) - 1) / 2
    return (margin - apart).relu().triu(1).sum() / max(1, pairs)


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
