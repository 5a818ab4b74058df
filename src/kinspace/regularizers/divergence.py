"""Divergence: the subembeddings of one vector should see different things in the same picture.

    R = mean_i mean_{p < q} max(0, margin - ||g_ip - g_iq||^2)

g_ip is the p-th group of dimensions of sample i (`groups`: how many, or their sizes) at length 1.
One group: 0. Where the groups are not of one size, the shorter ones count as ending in zeros, so
that any dimension will do (our choice).

The divergence loss of Kim et al., Attention-based ensemble for deep metric learning, ECCV 2018
(arXiv 1804.00382), with the margin 1 and the eight learners of ABE-8, after a summary of the paper;
the mean is our choice. In ABE the learners share the embedding layer and differ by masks on a
middle feature map: those of a model with `attention` (`kinspace.models.ensembles`). Groups of one
embedding layer have nothing in common that would keep them alike.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.tensor_ops import full_precision
from kinspace._core.vectors import Groups, checked_groups, group_sizes, stack_groups, unit

__all__ = ["Divergence", "divergence"]


@full_precision
@takes_options(groups=checked_groups, margin=checks.number)
def divergence(embeddings: Tensor, *, groups: Groups = 8, margin: float = 1.0) -> Tensor:
    """Divergence of the subembeddings (module docstring).

    Two groups at a squared distance of 2 - 2 * 0.6:

    >>> import torch
    >>> divergence(torch.tensor([[1.0, 0.0, 3.0, 4.0]]), groups=2)
    tensor(0.2000)
    """
    checks.vectors("embeddings", embeddings)
    sizes = group_sizes(groups, embeddings.shape[1])
    parts = unit(stack_groups(embeddings, sizes))  # (batch, groups, largest size)
    distances = (parts[:, :, None] - parts[:, None]).square().sum(-1)  # (batch, groups, groups)
    hinges = (margin - distances).relu().triu(1).sum()
    return hinges / max(1, len(parts) * len(sizes) * (len(sizes) - 1) // 2)


class Divergence(nn.Module):
    """`divergence` as a module; labels are taken and not used, as in every regularizer.

    >>> Divergence(groups=4)
    Divergence(groups=4, margin=1.0)
    """

    __call__: Callable[..., Tensor]
    takes = "embeddings"
    extra_repr = options_repr

    def __init__(self, *, groups: Groups = 8, margin: float = 1.0) -> None:
        super().__init__()
        keep_options(self, divergence, groups=groups, margin=margin)

    def forward(self, embeddings: Tensor, labels: Tensor | None = None) -> Tensor:
        return divergence(embeddings, **kept_options(self))
