"""NRA: a loss on nonlinear approximated ranks.

For each anchor i with distances D to all others (plain, not squared; embeddings not normalized):

    r(D) = (D - D_min) / (D_max - D_min)
    w(r) = (2r)^a / 2 for r < 1/2,   1 - (2(1 - r))^a / 2 above
    J    = -mean_i [ log(1 - w(r(D+)) + eps) + log(w(r(D-)) + eps) ]

D+ is the largest distance to a sample of the same class, D- the smallest to one of another. The
gradient passes through all four distances; with `detach_range` D_min and D_max are constants. If
all distances are equal r is 1/2 and has no gradient. An anchor without a positive (or negative)
has that term 0 and still counts in the mean.

Schall et al., Deep metric learning using similarities from nonlinear rank approximations, 2019,
Eq. 6-13.

Known weakness, stated by `rank_statistics`: an anchor whose nearest sample is a negative has r- =
0, loss at its cap and gradient zero, and likewise r+ = 1. From scratch most anchors are there;
from pretrained features few are. a < 1 has infinite slopes at both ends and is rejected.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from kinspace import checks, cuda_kernels
from kinspace.distances import squared_distances
from kinspace.numerics import full_precision, zero_of
from kinspace.slopes import with_slopes

__all__ = ["NRA", "nra_loss", "rank_statistics"]

# of the kernel
SOURCE = Path(__file__).with_suffix(".cu")
THREADS = 256


@full_precision
def nra_loss(
    embeddings: Tensor,
    labels: Tensor,
    *,
    alpha: float = 4.0,
    eps: float = 1e-4,
    detach_range: bool = False,
) -> Tensor:
    """NRA loss (module docstring).

    Each anchor's positive is its nearest sample, r+ = 0. For the outer two r- = (4 - 1)/(5 - 1),
    for the inner two (3 - 1)/(4 - 1); with alpha 1 the value is -(log 3/4 + log 2/3)/2, but for
    eps.

    >>> x = torch.tensor([[0.0], [1.0], [4.0], [5.0]])
    >>> nra_loss(x, torch.tensor([0, 0, 1, 1]), alpha=1.0)
    tensor(0.3463)
    """
    labels = checks.with_labels(embeddings, labels)
    checks.finite("alpha", alpha, at_least=1)
    checks.positive("eps", eps)
    if len(embeddings) == 1:
        return zero_of(embeddings)
    make = _fused if cuda_kernels.takes(embeddings) else _value_and_slope
    value, slope = make(embeddings, labels, alpha, eps, detach_range)
    return with_slopes(value, (embeddings, slope))


@torch.no_grad()
def _value_and_slope(
    embeddings: Tensor, labels: Tensor, alpha: float, eps: float, detach_range: bool
) -> tuple[Tensor, Callable[[], Tensor]]:
    chosen, squares = _four_neighbors(embeddings, labels)
    # The matrix chose; the four distances are made again, by differences.
    picked = chosen.flatten()
    apart = embeddings[:, None] - embeddings.index_select(0, picked).view(*chosen.shape, -1)
    distances = torch.linalg.vector_norm(apart, dim=2)  # (batch, 4)
    missing = squares[:, :2].isinf()
    value, by_distances = _rank_loss(distances, missing, alpha, eps, detach_range)

    def slope() -> Tensor:
        weights = by_distances() / functional.threshold(distances, 0, math.inf)
        pulls = apart.mul_(weights[:, :, None])
        return pulls.sum(1).index_add_(0, picked, pulls.flatten(0, 1), alpha=-1)

    return value, slope


@torch.no_grad()
def _fused(
    embeddings: Tensor, labels: Tensor, alpha: float, eps: float, detach_range: bool
) -> tuple[Tensor, Callable[[], Tensor]]:
    """`_value_and_slope` in one kernel after the distances."""
    x, squares = embeddings.detach().contiguous(), squared_distances(embeddings)
    terms, slopes = x.new_empty(len(x)), torch.zeros_like(x)
    tables = squares, x, labels.contiguous(), terms, slopes
    grid = math.ceil(len(x) / (THREADS // 32)), THREADS
    options = float(alpha), float(eps), *x.shape, int(detach_range)
    cuda_kernels.run((SOURCE, "rank_terms"), x, grid, *tables, *options)
    return terms.sum(), lambda: slopes


def _rank_loss(
    distances: Tensor, missing: Tensor, alpha: float, eps: float, fixed: bool
) -> tuple[Tensor, Callable[[], Tensor]]:
    """J of the four distances D+, D-, D_max, D_min, and its slope by them.

    With q = (1 - r+, r-) both terms are -log(w(q) + eps), since 1 - w(r) = w(1 - r).
    """
    pair, ends = distances[:, :2], distances[:, 2:]
    spans = ends - ends.flip(1)  # D_max - D_min for the positive, its negative for the other
    flat = spans == 0
    spans = spans.masked_fill_(flat, math.inf)
    q = ((ends - pair) / spans).clamp_(0, 1).masked_fill_(flat, 0.5)  # (batch, 2)
    low = q < 0.5
    twice = 2 * torch.where(low, q, 1 - q)
    half = 0.5 * twice.pow(alpha)
    weights = torch.where(low, half, 1 - half).add_(eps)

    def slope() -> Tensor:
        # d/dq -log(w + eps), over the number of samples
        by_q = (twice.pow(alpha - 1) / weights).mul_(-alpha / len(q)).masked_fill_(missing, 0)
        by_pair = by_q.div_(spans)
        if fixed:
            return torch.cat([-by_pair, torch.zeros_like(by_pair)], dim=1)
        # each end moves its own q by 1 - q over its span, and the other q by q over the other span
        other = by_pair * q
        return torch.cat([-by_pair, by_pair - other + other.flip(1)], dim=1)

    return weights.log().masked_fill_(missing, 0).sum() / -len(q), slope


def _four_neighbors(embeddings: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Indices of the farthest positive, nearest negative, farthest and nearest other sample.

    And their squared distances, infinite where there is no such sample; both (batch, 4).
    """
    squares = squared_distances(embeddings)
    same = labels[:, None] == labels
    squares.fill_diagonal_(-math.inf)  # no positive of itself, and never the farthest
    farthest = squares.max(1)
    positive = torch.where(same, squares, -math.inf).max(1)
    squares.fill_diagonal_(math.inf)
    nearest = squares.min(1)
    negative = squares.masked_fill_(same, math.inf).min(1)
    four = (positive, negative, farthest, nearest)
    indices = torch.stack([extreme.indices for extreme in four], dim=1)
    return indices, torch.stack([extreme.values for extreme in four], dim=1)


@torch.no_grad()
@full_precision
def rank_statistics(embeddings: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Fractions of anchors whose push (r- = 0) and whose pull (r+ = 1) are at their caps.

    There the loss of alpha > 1 has no gradient.

    >>> x = torch.tensor([[0.0], [4.0], [1.0], [5.0]])
    >>> rank_statistics(x, torch.tensor([0, 0, 1, 1]))
    (tensor(1.), tensor(0.5000))
    """
    labels = checks.with_labels(embeddings, labels)
    if len(embeddings) == 1:
        return embeddings.new_zeros(()), embeddings.new_zeros(())
    _, squares = _four_neighbors(embeddings, labels)
    positive, negative, farthest, nearest = squares.unbind(1)
    return (negative == nearest).float().mean(), (positive == farthest).float().mean()


class NRA(nn.Module):
    """`nra_loss` as a module.

    >>> NRA()
    NRA(alpha=4.0, eps=0.0001, detach_range=False)
    """

    def __init__(
        self, *, alpha: float = 4.0, eps: float = 1e-4, detach_range: bool = False
    ) -> None:
        super().__init__()
        self.alpha = checks.finite("alpha", alpha, at_least=1)
        self.eps = checks.positive("eps", eps)
        self.detach_range = detach_range

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return nra_loss(
            embeddings, labels, alpha=self.alpha, eps=self.eps, detach_range=self.detach_range
        )

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}, eps={self.eps}, detach_range={self.detach_range}"
