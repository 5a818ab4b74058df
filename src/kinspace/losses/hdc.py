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
choice. The authors' learners sit at three depths of GoogLeNet (after 4a, 4d and 5b): those of a
model with `depths` (`kinspace.models.ensembles`). Else all see the last features, and differ by the
pairs they are shown alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from kinspace import checks
from kinspace.gpu_kernels import TOGETHER, available, power_of_2
from kinspace.learners import checked_groups, group_sizes, stacked, unstacked
from kinspace.losses import hdc_kernel
from kinspace.numerics import full_precision
from kinspace.pairs import class_table
from kinspace.slopes import across, polar, with_slopes

__all__ = ["HDC", "hdc_loss"]

TIE = 1e-6  # distances that differ by less differ by rounding
DIFFERENCES = 2**24  # numbers up to which the differences within classes are simply made
WIDEST = 1024  # dimensions of a learner in the kernel, which keeps some rows of them at hand
LIMIT = 2**31  # pairs of all learners there: it counts in 32 bits


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
    labels = checks.with_labels(embeddings, labels, read=False)  # the table of classes reads them
    checks.finite("margin", margin)
    shares = _checked_shares(shares, groups)
    sizes = group_sizes(groups, embeddings.shape[1])
    value, slope = _value_and_slope(embeddings, labels, sizes, shares, margin)
    return with_slopes(value, (embeddings, slope))


@torch.no_grad()
def _value_and_slope(
    embeddings: Tensor, labels: Tensor, sizes: list[int], shares: Sequence[float], margin: float
) -> tuple[Tensor, Callable[[], Tensor]]:
    """The loss, and how to make its slope by the embeddings."""
    _, x, divisors = polar(stacked(embeddings, sizes))  # (batch, learners, size)
    compiling = torch.compiler.is_compiling()
    table = class_table(labels if compiling else torch.from_numpy(checks.on_host(labels)))
    same = table[1].sum() if compiling else int(table[1].sum())
    different = len(x) * (len(x) - 1) - same
    places = [(_place(same, share), _place(different, share)) for share in shares[: len(sizes)]]
    if programs := _programs(x, table[0]):
        value, by_x = _fused(x, divisors, table, places, margin, programs)
    else:
        index, positive = (part.to(labels.device) for part in table)
        value, by_x = _in_tables(x.transpose(0, 1), index, positive, places, margin)
    return value, lambda: unstacked(across(by_x(), x).div_(divisors), sizes)


def _in_tables(
    x: Tensor, index: Tensor, positive: Tensor, places: Sequence[Sequence[Any]], margin: float
) -> tuple[Tensor, Callable[[], Tensor]]:
    """The loss of x (learners, batch, size), and how to make its slope (batch, learners, size).

    All learners at once; a pair that one does not see is at -inf. Each pair appears twice.
    """
    lengths = torch.linalg.vector_norm(x, dim=2, keepdim=True)  # 1, or 0 of zeros
    pushes = (margin - lengths) - lengths.mT  # (learners, batch, batch)
    pushes.baddbmm_(x, x.mT, alpha=2)  # margin - D
    pulls, back = _same_with_pull(x, index, pushes, margin)
    pulls.masked_fill_(~positive, -math.inf)
    pushes.scatter_(2, index.expand(len(x), -1, -1), -math.inf)
    for learner in range(1, len(x)):
        for hardness, last in zip((pulls, pushes), places[learner], strict=True):
            _keep_hardest(hardness[learner - 1], hardness[learner], last)
    count = (pulls > -math.inf).sum((1, 2)).add_((pushes > -math.inf).sum((1, 2))).clamp_(min=1)
    total = pulls.relu_().sum((1, 2)).add_(pushes.relu_().sum((1, 2)))

    def slope() -> Tensor:
        grad = back(pulls.sign_(), pushes.sign_()).div_(count[:, None, None])
        return grad.transpose(0, 1)

    return (total / count).sum(), slope


def _same_with_pull(
    x: Tensor, index: Tensor, pushes: Tensor, margin: float
) -> tuple[Tensor, Callable[[Tensor, Tensor], Tensor]]:
    """D within the classes (learners, batch, class), and what takes weights back to x.

    By differences, which are exact for close samples, but for huge classes. The weights of those
    pairs and of all are symmetric. By products the lengths count as constant, as they are.
    """
    if x.numel() * index.shape[1] <= DIFFERENCES:
        beside = x.index_select(1, index.flatten()).view(len(x), *index.shape, -1)
        apart = x[:, :, None] - beside  # (learners, batch, class, size)

        def back(pulled: Tensor, pushed: Tensor) -> Tensor:
            own = (pulled[:, :, None] @ apart)[:, :, 0]
            return torch.baddbmm(own, pushed, x, beta=4, alpha=4)

        return apart.square().sum(3), back
    places = index.expand(len(x), -1, -1)

    def back_by_products(pulled: Tensor, pushed: Tensor) -> Tensor:
        weights = pushed.scatter_add_(2, places, pulled.neg_())
        return torch.baddbmm(x, weights, x, beta=0, alpha=4)

    return margin - pushes.gather(2, places), back_by_products


def _place(pairs: int | Tensor, share: float) -> int | Tensor:
    """The place of the last pair that a learner sees, among all pairs, each of which is twice."""
    if isinstance(pairs, int):
        return max(round(pairs * (share / 2)) - 1, 0)
    return (pairs.double() * (share / 2)).round_().sub_(1).relu_().long()


def _keep_hardest(hardness: Tensor, following: Tensor, last: int | Tensor) -> None:
    """Take from the following learner all but the hardest pairs of this one, and what ties."""
    flat = hardness.flatten()
    if isinstance(last, Tensor):
        least = flat.sort(descending=True).values[::2].gather(0, last[None])
    elif hardness.is_cuda:
        least = flat.sort(descending=True).values[2 * last]
    else:  # less work
        least = flat.kthvalue(len(flat) - 2 * last).values
    following.masked_fill_(hardness <= least - TIE, -math.inf)


def _programs(x: Tensor, index: Tensor) -> int:
    """Programs of the kernel for x (batch, learners, size); 0 where it does not take these."""
    if (
        available()
        and x.is_cuda
        and x.dtype == torch.float32
        and x.shape[2] <= WIDEST
        and x.numel() * index.shape[1] <= DIFFERENCES
        and len(x) ** 2 * x.shape[1] < LIMIT
        and not torch.compiler.is_compiling()
    ):
        return torch.cuda.get_device_properties(x.device).multi_processor_count
    return 0


def _fused(
    x: Tensor,
    divisors: Tensor,
    table: tuple[Tensor, Tensor],
    places: Sequence[Sequence[Any]],
    margin: float,
    programs: int,
) -> tuple[Tensor, Callable[[], Tensor]]:
    """`_in_tables` of x (batch, learners, size), in one kernel of so many programs."""
    x = x.contiguous()
    (size, learners, dim), (index, positive) = x.shape, table
    width = index.shape[1]
    # each pair is there twice; a learner passes on what the one after it sees
    ranks = [2 * place[kind] for kind in (1, 0) for place in (*places[1:], places[0])]
    state = 1 + learners + 2 * learners * hdc_kernel.DIGITS * hdc_kernel.BINS
    packed = np.zeros(size * width + len(ranks) + state, np.int32)  # one copy for all
    packed[: size * width] = np.where(positive.numpy(), index.numpy(), -1).ravel()
    packed[size * width : -state] = ranks
    there = torch.from_numpy(packed).to(x.device).split([size * width, len(ranks), state])
    rows = math.ceil(size / programs)
    programs = math.ceil(size / rows)
    pulls, sums = x.new_empty(learners, size, width), x.new_empty(programs)
    own, learner_rows = torch.empty_like(x), x.transpose(0, 1)
    products = torch.bmm(learner_rows, learner_rows.mT)  # (learners, batch, batch)
    with torch.cuda.device_of(x):  # Triton launches on the current one
        hdc_kernel.cascade[(programs,)](
            *(products, x, divisors.contiguous(), *there, pulls, own, sums),
            *(float(margin), size, learners, dim, width, rows),
            BLOCK=min(hdc_kernel.BLOCK, max(256, power_of_2(size))),
            WIDE=min(8, power_of_2(width)),
            DIM=power_of_2(dim),
            DIGITS=hdc_kernel.DIGITS,
            BINS=hdc_kernel.BINS,
            num_warps=hdc_kernel.WARPS,
            **TOGETHER,
        )
    by_own = own.transpose(0, 1)
    return sums.sum(), lambda: by_own.baddbmm_(products, learner_rows).transpose(0, 1)


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
