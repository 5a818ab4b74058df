"""ALMN: N-pair loss around class centers, its margin adapted by generated virtual points.

    L   = mean_i log(1 + sum_{j: y_j != y_i} exp(x_j . c_i - g_i . c_i)) + w/(2N) sum_i ||x_i||^2
    g_i = v_i ||x_i|| / ||v_i||,   v_i = x_i + M_i (x_i - c_i)
    M_i = beta k_i ||x_i|| / ||x_i - c_i||,   k_i = 2 sin(max(nearest_i - own_i, 0) / 2)

c_i is the center of i's class (a constant: no gradient), own_i the angle between c_i and x_i,
nearest_i the smallest angle between c_i and a sample of another class. The virtual point g_i
lies as far beyond x_i as the neighborhood allows; the embeddings are not normalized.

Chen and Deng, ALMN: Deep embedding learning with geometrical virtual point generating, 2018,
Eq. 6-8; beta = 0 is Eq. 3. After the loss the centers move by Eq. 2.

Deviations from print:
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
from typing import Unpack

import torch
from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.class_index import ClassIndex
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.samples import Samples, takes_labels, takes_samples
from kinspace._core.tensor_ops import REDUCTIONS, full_precision, log1p_sum_exp, reduce
from kinspace._core.vectors import norms, unit
from kinspace.losses.class_centers import ClassCenters

__all__ = ["ALMN", "almn_loss", "center_n_pair_terms", "virtual_points"]

MARGINS = ("clipped", "printed")


@takes_samples
@takes_options(
    beta=checks.at_least(0),
    norm_weight=checks.at_least(0),
    margin=checks.one_of(MARGINS),
    reduction=checks.one_of(REDUCTIONS),
)
def almn_loss(
    embeddings: Tensor,
    labels: Tensor,
    centers: Tensor,
    *,
    beta: float = 3.0,
    norm_weight: float = 5e-4,
    margin: str = "clipped",
    reduction: str = "mean",
    **samples: Unpack[Samples],
) -> Tensor:
    """ALMN loss (module docstring) around given centers, one row a class.

    With beta 0 and these centers both logits of each sample are 1 and 0: log(1 + 1/e).

    >>> almn_loss(torch.eye(2), torch.tensor([0, 1]), torch.eye(2), beta=0.0, norm_weight=0.0)
    tensor(0.3133)
    """
    centers = checks.matching_rows("centers", centers, embeddings)
    labels = checks.labels(embeddings, labels, len(centers))
    own = centers.detach()[labels]
    points = virtual_points(embeddings, labels, centers, beta=beta, margin=margin)
    positive = (points * own).sum(1)
    return reduce(center_n_pair_terms(embeddings, labels, own, positive, norm_weight), reduction)


def center_n_pair_terms(
    x: Tensor, labels: Tensor, own: Tensor, positive: Tensor, norm_weight: float
) -> Tensor:
    """log(1 + sum_{j: y_j != y_i} exp(x_j . c_i - p_i)) + w/2 ||x_i||^2 for each sample i.

    own: the centers c_i of the samples' classes, (batch, dim); positive: the p_i, (batch,).
    """
    logits = own @ x.T - positive[:, None]  # (batch, batch)
    terms = log1p_sum_exp(logits, ClassIndex(labels).different)
    return terms + norm_weight / 2 * x.square().sum(1)


@full_precision
@takes_options(beta=checks.at_least(0), margin=checks.one_of(MARGINS))
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
    centers = checks.matching_rows("centers", centers, embeddings)
    labels = checks.labels(embeddings, labels, len(centers))
    own = centers.detach()[labels]
    length = norms(embeddings)
    step = beta * _chords(embeddings, labels, own, margin) * length  # M ||x - c||, (batch, 1)
    moved = embeddings + step * unit(embeddings - own)
    return torch.where(step > 0, unit(moved) * length, embeddings)


@torch.no_grad()
def _chords(x: Tensor, labels: Tensor, own: Tensor, margin: str) -> Tensor:
    """k of Eq. 6 for each sample, (batch, 1); 0 without a negative or without an angle."""
    x, own = unit(x), unit(own)
    different = ClassIndex(labels).different
    cosines = (own @ x.T).masked_fill(~different, -math.inf)
    nearest = x[cosines.argmax(1)]
    gap = _half_angles(nearest, own) - _half_angles(x, own)
    gap = gap.clamp(min=0) if margin == "clipped" else gap.abs()
    return (2 * gap.sin()).masked_fill(~different.any(1), 0.0)[:, None]


def _half_angles(x: Tensor, y: Tensor) -> Tensor:
    """Half the angle of unit vectors; unlike an arc cosine exact for small ones too."""
    return torch.atan2(norms(x - y), norms(x + y))[:, 0]


class ALMN(nn.Module):
    """ALMN with its class centers, which are buffers.

    In training each call uses the centers as they stand, then moves them by Eq. 2. In evaluation
    they stay.

    >>> criterion = ALMN(num_classes=2, dim=3)
    >>> float(criterion(torch.eye(3)[:2], torch.tensor([0, 1]))) > 0
    True
    """

    __call__: Callable[..., Tensor]
    extra_repr = options_repr

    def __init__(
        self,
        num_classes: int,
        dim: int,
        *,
        beta: float = 3.0,
        norm_weight: float = 5e-4,
        margin: str = "clipped",
        rate: float = 0.5,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        keep_options(
            self, almn_loss, beta=beta, norm_weight=norm_weight, margin=margin, reduction=reduction
        )
        self.class_centers = ClassCenters(num_classes, dim, rate=rate)

    @property
    def centers(self) -> Tensor:
        """The centers as they stand, (classes, dim)."""
        return self.class_centers.centers

    @takes_labels
    def forward(self, embeddings: Tensor, labels: Tensor, **samples: Unpack[Samples]) -> Tensor:
        return almn_loss(
            embeddings,
            labels,
            self.class_centers(embeddings, labels),
            **kept_options(self),
            **samples,
        )
