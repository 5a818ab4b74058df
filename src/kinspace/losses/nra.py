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

import torch
from torch import Tensor, nn

from kinspace import checks
from kinspace.distances import paired_distances, squared_distances
from kinspace.numerics import full_precision, zero_of

__all__ = ["NRA", "nra_loss", "rank_statistics"]


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
    rooms, missing = _rooms(embeddings, labels, detach_range)
    logs = torch.log(_transfer(rooms, alpha) + eps)  # (batch, 2)
    return logs.masked_fill(missing, 0).sum() / -len(logs)


def _rooms(embeddings: Tensor, labels: Tensor, detach_range: bool) -> tuple[Tensor, Tensor]:
    """1 - r of the farthest positive and r of the nearest negative, (batch, 2); which are missing.

    The loss is -log(w + eps) of both, since 1 - w(r) = w(1 - r).
    """
    chosen, squares = _four_neighbors(embeddings.detach(), labels)
    missing = squares[:, :2].isinf()
    # The matrix chose; the four distances are made again, by differences, to be differentiated.
    others = embeddings.index_select(0, chosen.flatten()).view(*chosen.shape, -1)
    distances = paired_distances(embeddings[:, None], others)  # (batch, 4)
    pair, ends = distances[:, :2], distances[:, 2:]
    ends = ends.detach() if detach_range else ends
    spans = ends - ends.flip(1)  # D_max - D_min for the positive, its negative for the negative
    flat = spans == 0
    rooms = (ends - pair) / spans.masked_fill(flat, math.inf)
    # Rounding may leave [0, 1]. Put back as a constant: a clamp stops the gradient at its ends.
    rooms = rooms + (rooms.clamp(0, 1) - rooms).detach()
    return rooms.masked_fill(flat, 0.5), missing


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


def _transfer(ranks: Tensor, alpha: float) -> Tensor:
    """w(r): flat at both ends, steep at 1/2 (Eq. 10)."""
    low = ranks < 0.5
    folded = 0.5 * (2 * torch.where(low, ranks, 1 - ranks)).pow(alpha)
    return torch.where(low, folded, 1 - folded)


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
