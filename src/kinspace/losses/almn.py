"""ALMN: N-pair loss around class centers, its margin adapted by generated virtual points.

    L   = mean_i log(1 + sum_{j: y_j != y_i} exp(x_j . c_i - g_i . c_i)) + w/(2N) sum_i ||x_i||^2
    g_i = v_i ||x_i|| / ||v_i||,   v_i = x_i + M_i (x_i - c_i)
    M_i = beta k_i ||x_i|| / ||x_i - c_i||,   k_i = 2 sin(max(nearest_i - own_i, 0) / 2)

c_i is the center of i's class (a constant: no gradient), own_i the angle between c_i and x_i,
nearest_i the smallest angle between c_i and a sample of another class. The virtual point g_i
lies as far beyond x_i as the neighborhood allows; the embeddings are not normalized.

Chen and Deng, ALMN: Deep embedding learning with geometrical virtual point generating, 2018,
Eq. 6-8; beta = 0 is Eq. 3. After the loss the centers move by Eq. 2.

Where we deviate from the print:
- Eq. 6 has sqrt(2 - 2 cos(nearest - own)), which is even: a hard sample (own > nearest) would get
  a strong margin, against the paper's own text. So the angle is clipped at 0. `margin="printed"`
  is the even form.
- The gradient holds the angles constant and differentiates ||x_i|| and ||x_i - c_i|| in M_i. That
  is what Eq. 11 does; its print is garbled and its last term wrong.
- A class seen for the first time starts at its batch mean (the paper does not say).
- x = c, ||x|| = 0, ||c|| = 0 or no negative: M = 0, so g = x.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from kinspace import checks, cuda_kernels
from kinspace.losses.centers import follow, register_centers
from kinspace.losses.n_pair import center_softmax
from kinspace.numerics import full_precision, unit
from kinspace.slopes import polar, with_slopes

__all__ = ["ALMN", "almn_loss", "virtual_points"]

MARGINS = ("clipped", "printed")
# of the kernel
SOURCE = Path(__file__).with_suffix(".cu")
THREADS = 128


@full_precision
def almn_loss(
    embeddings: Tensor,
    labels: Tensor,
    centers: Tensor,
    *,
    beta: float = 3.0,
    norm_weight: float = 5e-4,
    margin: str = "clipped",
) -> Tensor:
    """ALMN loss (module docstring) around given centers, one row a class.

    With beta 0 and these centers both logits of each sample are 1 and 0: log(1 + 1/e).

    >>> almn_loss(torch.eye(2), torch.tensor([0, 1]), torch.eye(2), beta=0.0, norm_weight=0.0)
    tensor(0.3133)
    """
    checks.finite("norm_weight", norm_weight, at_least=0)
    labels, own = _own_centers(embeddings, labels, centers, beta, margin)
    return _loss(embeddings, labels, own, beta, norm_weight, margin)


@full_precision
def _loss(
    embeddings: Tensor, labels: Tensor, own: Tensor, beta: float, norm_weight: float, margin: str
) -> Tensor:
    x = embeddings.detach()
    rows = polar(x)
    logits = own @ x.T  # (batch, batch)
    same = labels[:, None] == labels
    nearest = _nearest(logits, rows[2], same)
    if cuda_kernels.takes(x):
        positive = _fused(x.contiguous(), own, nearest, beta, margin)
    else:
        positive = _positive(x, rows, own, _strength(rows, own, nearest, beta, margin))
    value, slope = center_softmax(x, rows[0], own, logits, same, positive, norm_weight)
    return with_slopes(value, (embeddings, slope))


@torch.no_grad()
def _fused(
    x: Tensor, own: Tensor, nearest: tuple[Tensor, Tensor], beta: float, margin: str
) -> tuple[Tensor, Callable[[], Tensor]]:
    """`_positive` and `_strength` in one kernel."""
    positive, slopes, (closeness, places) = x.new_empty(len(x), 1), torch.empty_like(x), nearest
    grid = math.ceil(len(x) / (THREADS // 32)), THREADS
    tables = x, own, places, closeness, positive, slopes
    options = float(beta), torch.finfo(x.dtype).tiny, *x.shape
    macros = (f"CLIPPED={int(margin == 'clipped')}",)
    cuda_kernels.run((SOURCE, "virtual_points"), x, grid, *tables, *options, macros=macros)
    return positive, lambda: slopes


@torch.no_grad()
def _positive(
    x: Tensor, rows: tuple[Tensor, Tensor, Tensor], own: Tensor, strength: Tensor
) -> tuple[Tensor, Callable[[], Tensor]]:
    """g . c for each sample and its slope; g as in `virtual_points`, the strength a constant."""
    length, toward, _ = rows
    _, away, apart = polar(x - own)
    step = strength * length  # M ||x - c||, (batch, 1)
    _, direction, reach = polar(torch.addcmul(x, step, away))
    cosine = (direction * own).sum(1, keepdim=True)

    def slope() -> Tensor:
        # by v, of which the direction counts alone: across it, and over its length
        by_moved = torch.addcmul(own, cosine, direction, value=-1).mul_(length / reach)
        along = (by_moved * away).sum(1, keepdim=True)
        turned = torch.addcmul(by_moved, along, away, value=-1)
        by_length = torch.addcmul(cosine, strength, along)
        grad = by_moved.addcmul_(step / apart, turned).addcmul_(by_length, toward)
        return torch.where(length > 0, grad, own)  # x = 0 is its own virtual point

    return length * cosine, slope


@full_precision
def virtual_points(
    embeddings: Tensor,
    labels: Tensor,
    centers: Tensor,
    *,
    beta: float = 3.0,
    margin: str = "clipped",
) -> Tensor:
    """The virtual points g (Eq. 7), one for each embedding and of its length.

    Any loss may be given them in place of its positives, with any miner.

    Seen from its center at (1, 0) the first sample is 90 degrees from the nearest negative: k =
    sqrt 2, M = 2, v = (1, 3).

    >>> x = torch.tensor([[1.0, 1.0], [-1.0, 1.0]])
    >>> virtual_points(x, torch.tensor([0, 1]), torch.tensor([[1.0, 0.0], [-1.0, 0.0]]), beta=1.0)
    tensor([[ 0.4472,  1.3416],
            [-0.4472,  1.3416]])
    """
    labels, own = _own_centers(embeddings, labels, centers, beta, margin)
    x = embeddings.detach()
    same = labels[:, None] == labels
    rows = polar(x)
    nearest = _nearest(own @ x.T, rows[2], same)
    strength = _strength(rows, own, nearest, beta, margin)
    length = torch.linalg.vector_norm(embeddings, dim=1, keepdim=True)
    step = strength * length  # M ||x - c||, (batch, 1)
    moved = torch.addcmul(embeddings, step, unit(embeddings - own))
    return torch.where(step > 0, unit(moved) * length, embeddings)


def _own_centers(
    embeddings: Tensor, labels: Tensor, centers: Tensor, beta: float, margin: str
) -> tuple[Tensor, Tensor]:
    checks.finite("beta", beta, at_least=0)
    checks.choice("margin", margin, MARGINS)
    centers = checks.matching_rows("centers", centers, embeddings).detach()
    labels = checks.with_labels(embeddings, labels, len(centers))
    return labels, centers.index_select(0, labels)


@torch.no_grad()
def _nearest(logits: Tensor, divisors: Tensor, same: Tensor) -> tuple[Tensor, Tensor]:
    """How close the nearest negative of each sample is, -inf where there is none, and which."""
    # the cosines but for the length of the center, the same for all of a row
    values, indices = (logits / divisors.T).masked_fill_(same, -math.inf).max(1)
    return values, indices


@torch.no_grad()
def _strength(
    rows: tuple[Tensor, Tensor, Tensor],
    own: Tensor,
    nearest: tuple[Tensor, Tensor],
    beta: float,
    margin: str,
) -> Tensor:
    """beta k, (batch, 1): k from the angles of the sample and of the nearest negative."""
    (_, toward, _), centers, (closeness, places) = rows, unit(own), nearest
    pair = torch.stack([toward.index_select(0, places), toward])  # (2, batch, dim)
    # half the angle of two unit vectors; unlike an arc cosine exact for small ones too
    apart = torch.linalg.vector_norm(pair - centers, dim=2)
    half = torch.atan2(apart, torch.linalg.vector_norm(pair + centers, dim=2))
    gap = torch.sub(*half.unbind())  # 0 for a center of 0, which is at one angle from all
    gap = gap.clamp_(min=0) if margin == "clipped" else gap.abs_()
    return gap.sin_().mul_(2 * beta).masked_fill_(closeness == -math.inf, 0)[:, None]


class ALMN(nn.Module):
    """ALMN with its class centers, kept as buffers.

    In training each call uses the centers as they stand, then moves them by Eq. 2. In evaluation
    they stay.

    >>> criterion = ALMN(num_classes=2, dim=3)
    >>> float(criterion(torch.eye(3)[:2], torch.tensor([0, 1]))) > 0
    True
    """

    centers: Tensor
    seen: Tensor

    def __init__(
        self,
        num_classes: int,
        dim: int,
        *,
        beta: float = 3.0,
        norm_weight: float = 5e-4,
        margin: str = "clipped",
        rate: float = 0.5,
    ) -> None:
        super().__init__()
        self.beta = checks.finite("beta", beta, at_least=0)
        self.norm_weight = checks.finite("norm_weight", norm_weight, at_least=0)
        self.margin = checks.choice("margin", margin, MARGINS)
        self.rate = checks.finite("rate", rate)
        register_centers(self, num_classes, dim)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        labels, own = follow(self, embeddings, labels)
        return _loss(embeddings, labels, own, self.beta, self.norm_weight, self.margin)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, norm_weight={self.norm_weight}, margin={self.margin!r}"
