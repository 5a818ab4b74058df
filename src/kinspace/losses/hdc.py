"""HDC: a cascade of learners within one embedding, each sees the pairs hard for the one before.

    L   = sum_k mean_{pairs in S_k} l_k
    l_k = D_k for a same pair, max(0, margin - D_k) for a different one

The learners are groups of the embedding's dimensions (`kinspace.learners`), D_k is the squared
distance of the k-th groups at length 1. S_1 are all pairs. S_{k+1} is a share of all same pairs,
and of all different ones, `shares`: those of S_k with the largest losses l_k, and beyond the margin
the nearest different ones. The number is rounded, but at least one; ties are kept together. S is a
constant of the gradient.

Yuan et al., Hard-aware deeply cascaded embedding, ICCV 2017 (arXiv 1611.05720). The shares 100, 50
and 20 %, the margin 1 and groups of 128 dimensions are those of the authors' published code. That
code keeps every same pair and ranks by the learner's own loss; here it is by the learner before, as
the paper's abstract has it. That S_{k+1} lies within S_k, and the mean over the pairs, are our
choice. The authors' learners sit at three depths of GoogLeNet (after 4a, 4d and 5b); here all see
the last features, so that they differ by what they are shown and not by how complex they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from kinspace import checks
from kinspace.distances import distances_with_pull
from kinspace.learners import checked_groups, group_sizes
from kinspace.numerics import full_precision
from kinspace.pairs import different_pairs, same_pairs
from kinspace.slopes import unit_with_pull, with_slopes

__all__ = ["HDC", "hdc_loss"]

TIE = 1e-6  # distances that differ by less differ by rounding


@full_precision
def hdc_loss(
    embeddings: Tensor,
    labels: Tensor,
    *,
    groups: int | tuple[int, ...] = 3,
    shares: tuple[float, ...] = (1.0, 0.5, 0.2),
    margin: float = 1.0,
) -> Tensor:
    """HDC's cascade of contrastive losses (module docstring).

    Two learners of one dimension. For the first the different pairs have the losses 1 and 0, the
    same pair 4: a mean of 5/3 of three. The second sees the same pair (0) and the harder of the
    different ones (1): a mean of 1/2.

    >>> x = torch.tensor([[1.0, 1.0], [-1.0, 1.0], [1.0, 1.0]])
    >>> hdc_loss(x, torch.tensor([0, 0, 1]), groups=2, shares=(1.0, 0.5))
    tensor(2.1667)
    """
    labels = checks.with_labels(embeddings, labels)
    checks.finite("margin", margin)
    shares = _checked_shares(shares, groups)
    sizes = group_sizes(groups, embeddings.shape[1])
    value, slope = _value_and_slope(embeddings, labels, sizes, shares, margin)
    return with_slopes(value, (embeddings, lambda: slope))


@torch.no_grad()
def _value_and_slope(
    embeddings: Tensor, labels: Tensor, sizes: list[int], shares: Sequence[float], margin: float
) -> tuple[Tensor, Tensor]:
    # each pair once: the upper triangle
    same, different = same_pairs(labels).triu_(1), different_pairs(labels).triu_(1)
    seen = same | different
    value, slopes = embeddings.new_zeros(()), []
    for place, part in enumerate(embeddings.split(sizes, 1)):
        x, pull = unit_with_pull(part)
        squares, pull_squares = distances_with_pull(x)
        losses = torch.where(same, squares, (margin - squares).relu_())  # (batch, batch)
        count = seen.sum().clamp(min=1)
        value = value + (losses * seen).sum() / count
        weights = torch.where(same, 1, -(squares < margin).to(x.dtype)) * (seen / count)
        if place + 1 < len(sizes):
            share = shares[place + 1]
            near = _hardest(-squares, different & seen, share * different.sum())
            seen = near | _hardest(squares, same & seen, share * same.sum())
        slopes.append(pull(pull_squares(weights)))  # uses up the squares
    return value, torch.cat(slopes, 1)


def _hardest(hardness: Tensor, seen: Tensor, count: Tensor) -> Tensor:
    """Of the pairs that were seen, so many of the hardest, and all that tie with the last."""
    ranked = hardness.masked_fill(~seen, -math.inf).flatten().sort(descending=True).values
    last = ranked.gather(0, count.round().long().clamp_(min=1)[None] - 1)
    return seen & (hardness > last - TIE)


def _checked_shares(shares: Sequence[float], groups: int | Sequence[int]) -> tuple[float, ...]:
    asked = checked_groups(groups)
    learners = asked if isinstance(asked, int) else len(asked)
    if not isinstance(shares, (list, tuple)) or len(shares) != learners:
        raise ValueError(f"shares: expected one for each of {learners} learners, got {shares!r}")
    checked = tuple(checks.positive("shares", share) for share in shares)
    if checked[0] != 1 or list(checked) != sorted(checked, reverse=True):
        raise ValueError(f"shares: expected 1 first and none above the one before, got {shares!r}")
    return checked


class HDC(nn.Module):
    """`hdc_loss` as a module. Give the head of the model the same groups.

    >>> HDC(groups=2, shares=(1.0, 0.5))
    HDC(groups=2, shares=(1.0, 0.5), margin=1.0)
    """

    def __init__(
        self,
        *,
        groups: int | tuple[int, ...] = 3,
        shares: tuple[float, ...] = (1.0, 0.5, 0.2),
        margin: float = 1.0,
    ) -> None:
        super().__init__()
        self.groups = checked_groups(groups)
        self.shares = _checked_shares(shares, groups)
        self.margin = checks.finite("margin", margin)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return hdc_loss(
            embeddings, labels, groups=self.groups, shares=self.shares, margin=self.margin
        )

    def extra_repr(self) -> str:
        return f"groups={self.groups}, shares={self.shares}, margin={self.margin}"
