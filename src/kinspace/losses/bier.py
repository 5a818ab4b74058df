"""BIER: learners within one embedding, each trained on the pairs that those before it get wrong.

    L      = 1/M sum_m [ mean_{same pairs} w_m l(s_m) + mean_{different pairs} w_m l(s_m) ]
    l(s)   = log(1 + exp(-z(s))),   z(s) = scale (s - margin) for a same pair,
                                         -cost scale (s - margin) for a different one
    F_m    = (1 - v_m) F_{m-1} + v_m s_m,   v_m = 2 / (m + 1),   F_0 = 0
    w_1    = 1,   w_{m+1} = 1 / (1 + exp(z(F_m)))

The M learners are groups of the embedding's dimensions (`kinspace.learners`), s_m the cosine of the
m-th group, F_m that of the ensemble so far. l is the binomial deviance. The weights w, its negative
derivative by z, are constants of the gradient. No same or no different pair: that mean is 0.

Opitz et al., BIER: Boosting independent embeddings robustly, ICCV 2017, and Deep metric learning
with BIER, TPAMI 2018 (arXiv 1801.04815). Constants, the two means, the first weight and the
derivative by z (by s it would be larger by scale or cost scale) are those of the authors' published
code. Left out are both auxiliary losses that make the learners differ: they act on the embedding
layer alone and hold its weights' lengths at 1, which a loss on embeddings does not see. That of
A-BIER is there for embeddings, as the regularizer `adversarial`.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from kinspace import checks, cuda_kernels
from kinspace.learners import checked_groups, group_sizes
from kinspace.numerics import full_precision
from kinspace.pairs import different_pairs
from kinspace.slopes import unit_with_pull, with_slopes

__all__ = ["BIER", "bier_loss"]

# of the kernel
SOURCE = Path(__file__).with_suffix(".cu")
THREADS = 256


@full_precision
def bier_loss(
    embeddings: Tensor,
    labels: Tensor,
    *,
    groups: int | tuple[int, ...] = 3,
    scale: float = 2.0,
    margin: float = 0.5,
    cost: float = 25.0,
) -> Tensor:
    """BIER's boosted binomial deviance (module docstring).

    Two learners of one dimension; the only pair is of one class. The first is right (cosine 1,
    z = 1), so that the second, which is wrong (cosine -1, z = -3), has the weight 1 / (1 + e):
    half of log(1 + e^-1) + log(1 + e^3) / (1 + e).

    >>> x = torch.tensor([[1.0, 1.0], [1.0, -1.0]])
    >>> bier_loss(x, torch.tensor([0, 0]), groups=2)
    tensor(0.5666)
    """
    labels = checks.with_labels(embeddings, labels)
    sizes = group_sizes(groups, embeddings.shape[1])
    _check_options(scale, margin, cost)
    make = _fused if cuda_kernels.takes(embeddings) else _value_and_slope
    value, slope = make(embeddings, labels, sizes, (scale, margin, cost))
    return with_slopes(value, (embeddings, lambda: slope))


@torch.no_grad()
def _value_and_slope(
    embeddings: Tensor, labels: Tensor, sizes: list[int], deviance: tuple[float, float, float]
) -> tuple[Tensor, Tensor]:
    (scale, margin, cost), learners = deviance, len(sizes)
    different = different_pairs(labels)
    steepness = embeddings.new_full(different.shape, scale)
    steepness.masked_fill_(different, -cost * scale)
    count = different.sum()
    counts = torch.stack((count, len(labels) * (len(labels) - 1) - count))  # different, same
    means = counts.mul_(learners).clamp_(min=1).to(steepness.dtype).reciprocal_()
    weights = shares = torch.where(different, means[0], means[1]).fill_diagonal_(0)
    logs, slopes, ensemble = [], [], steepness
    for place, part in enumerate(embeddings.split(sizes, 1)):
        x, pull = unit_with_pull(part)
        z = (x @ x.T).sub_(margin).mul_(steepness)  # (batch, batch)
        logs.append(functional.logsigmoid(z).mul_(weights).sum())
        # of a symmetric table: each cosine belongs to both of its samples
        slopes.append(pull((z.neg().sigmoid_() * weights).mul_(steepness) @ x).mul_(-2))
        if place + 1 < learners:
            ensemble = torch.lerp(ensemble, z, 2 / (place + 2)) if place else z
            weights = ensemble.neg().sigmoid_().mul_(shares)
    return torch.stack(logs).sum().neg_(), torch.cat(slopes, 1)


@torch.no_grad()
def _fused(
    embeddings: Tensor, labels: Tensor, sizes: list[int], deviance: tuple[float, float, float]
) -> tuple[Tensor, Tensor]:
    """`_value_and_slope` with a kernel for each learner."""
    size, learners = len(labels), len(sizes)
    counts = np.unique(checks.on_host(labels), return_counts=True)[1]
    same = int((counts * (counts - 1)).sum())
    shares = (1 / max(learners * pairs, 1) for pairs in (same, size * (size - 1) - same))
    options = *map(float, deviance), *shares
    ensemble, sums = embeddings.new_empty(size, size), embeddings.new_empty(learners, size)
    slopes = []
    for place, part in enumerate(embeddings.split(sizes, 1)):
        x, pull = unit_with_pull(part)
        table = x @ x.T
        tables = table, ensemble, labels.contiguous(), sums[place]
        numbers = *options, 2 / (place + 2), size
        cuda_kernels.run((SOURCE, "boost"), x, (size, THREADS), *tables, *numbers)
        slopes.append(pull(table @ x))
    return sums.sum(), torch.cat(slopes, 1)


def _check_options(scale: float, margin: float, cost: float) -> None:
    checks.positive("scale", scale)
    checks.finite("margin", margin)
    checks.positive("cost", cost)


class BIER(nn.Module):
    """`bier_loss` as a module. Give the head of the model the same groups.

    >>> BIER(groups=(96, 160, 256))
    BIER(groups=(96, 160, 256), scale=2.0, margin=0.5, cost=25.0)
    """

    def __init__(
        self,
        *,
        groups: int | tuple[int, ...] = 3,
        scale: float = 2.0,
        margin: float = 0.5,
        cost: float = 25.0,
    ) -> None:
        super().__init__()
        self.groups = checked_groups(groups)
        _check_options(scale, margin, cost)
        self.scale = scale
        self.margin = margin
        self.cost = cost

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return bier_loss(
            embeddings,
            labels,
            groups=self.groups,
            scale=self.scale,
            margin=self.margin,
            cost=self.cost,
        )

    def extra_repr(self) -> str:
        return f"groups={self.groups}, scale={self.scale}, margin={self.margin}, cost={self.cost}"
