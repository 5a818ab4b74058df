"""HDC: a cascade of subembeddings, each sees the pairs that are hard for the one before.

    L   = sum_k mean_{pairs in S_k} l_k
    l_k = D_k for a same pair, max(0, margin - D_k) for a different one

The learners are groups of the embedding's dimensions (`groups`: how many, or their sizes), D_k is
the squared distance of the k-th groups at length 1. S_1 are all pairs. S_{k+1} is a share of all
same pairs, and of all different ones, `shares`: those of S_k with the largest losses l_k, and
beyond the margin the nearest different ones. The number is rounded, but at least one; ties are kept
together. S is a constant of the gradient. Pairs of samples of the batch have two orders and stay or
go together; with a reference alone each pair is one of a sample and a row.

Yuan et al., Hard-aware deeply cascaded embedding, ICCV 2017 (arXiv 1611.05720). The shares 100, 50
and 20 %, the margin 1 and groups of 128 dimensions are those of the authors' published code. That
code keeps every same pair and ranks by the learner's own loss; here it is by the learner before, as
the paper's abstract has it. That S_{k+1} lies within S_k, and the mean over the pairs, are our
choice. The authors' learners sit at three depths of GoogLeNet (after 4a, 4d and 5b): those of a
model with `depths` (`kinspace.models.ensembles`). Otherwise all see the last features, and differ
only by the pairs they are shown.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Unpack

import torch
from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.references import compared
from kinspace._core.samples import Anchors, Labels, Reference, takes_samples
from kinspace._core.tensor_ops import kth_largest, zero_with_grad
from kinspace._core.vectors import Groups, checked_groups, group_sizes, squared_distances, unit

__all__ = ["HDC", "hdc_loss"]

TIE = 1e-6  # distances that differ by less differ by rounding


@takes_samples
@takes_options(groups=checked_groups, margin=checks.number)
def hdc_loss(  # noqa: PLR0913 (an option each)
    embeddings: Tensor,
    labels: Labels,
    *,
    groups: Groups = 3,
    shares: tuple[float, ...] = (1.0, 0.5, 0.2),
    margin: float = 1.0,
    reference: Tensor | None = None,
    reference_labels: Labels | None = None,
    includes_batch: bool = False,
    **samples: Unpack[Anchors],
) -> Tensor:
    """HDC's cascade of contrastive losses (module docstring).

    Two learners of one dimension. For the first the different pairs have the losses 1 and 0, the
    same pair 4: a mean of 5/3 of three. The second sees the same pair (0) and the harder of the
    different ones (1): a mean of 1/2.

    >>> x = torch.tensor([[1.0, 1.0], [-1.0, 1.0], [1.0, 1.0]])
    >>> hdc_loss(x, torch.tensor([0, 0, 1]), groups=2, shares=(1.0, 0.5))
    tensor(2.1667)
    """
    reference, index = compared(embeddings, labels, reference, reference_labels, includes_batch)
    shares = _checked_shares(shares, groups)
    sizes = group_sizes(groups, embeddings.shape[1])
    parts = embeddings.split(sizes, 1)
    others = parts if reference is None else reference.split(sizes, 1)
    orders = 1 + int(index.excludes_itself)  # in which a pair appears
    members, same = index.positives  # (batch, largest class)
    different = index.different
    kept_same, kept_different = same, different
    total = zero_with_grad(embeddings)
    for number, (part, other) in enumerate(zip(parts, others, strict=True)):
        rows = None if reference is None else unit(other)
        distances = squared_distances(unit(part), rows)  # (batch, batch)
        pull, push = distances.gather(1, members), margin - distances
        loss = (pull * kept_same).sum() + (push.relu() * kept_different).sum()
        total = total + loss / (kept_same.sum() + kept_different.sum()).clamp(min=1)
        if number + 1 < len(parts):
            share = shares[number + 1]
            count = [_count(pairs, share, orders) for pairs in (same, different)]
            kept_same = _hardest(pull.detach(), kept_same, count[0])
            kept_different = _hardest(push.detach(), kept_different, count[1])
    return total


def _count(pairs: Tensor, share: float, orders: int) -> Tensor:
    """How many entries of the table a share of all its pairs is."""
    return orders * (pairs.sum().double() * (share / orders)).round().clamp(min=1).long()


@torch.no_grad()
def _hardest(hardness: Tensor, kept: Tensor, count: Tensor) -> Tensor:
    """Of the pairs kept so far the hardest, so many, and their ties."""
    least = kth_largest(hardness.masked_fill(~kept, -math.inf).flatten(), count)
    return kept & (hardness > least - TIE)


def _checked_shares(shares: Sequence[float], groups: int | Sequence[int]) -> tuple[float, ...]:
    asked = checked_groups("groups", groups)
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

    __call__: Callable[..., Tensor]
    extra_repr = options_repr

    def __init__(
        self,
        *,
        groups: Groups = 3,
        shares: tuple[float, ...] = (1.0, 0.5, 0.2),
        margin: float = 1.0,
    ) -> None:
        super().__init__()
        shares = _checked_shares(shares, groups)
        keep_options(self, hdc_loss, groups=groups, shares=shares, margin=margin)

    def forward(self, embeddings: Tensor, labels: Labels, **inputs: Unpack[Reference]) -> Tensor:
        return hdc_loss(embeddings, labels, **kept_options(self), **inputs)
