"""BIER: subembeddings within one vector, each trained on the pairs that those before get wrong.

    L      = 1/M sum_m [ mean_{same pairs} w_m l(s_m) + mean_{different pairs} w_m l(s_m) ]
    l(s)   = log(1 + exp(-z(s))),   z(s) = scale (s - margin) for a same pair,
                                         -cost scale (s - margin) for a different one
    F_m    = (1 - v_m) F_{m-1} + v_m s_m,   v_m = 2 / (m + 1),   F_0 = 0
    w_1    = 1,   w_{m+1} = 1 / (1 + exp(z(F_m)))

The M learners are groups of the embedding's dimensions (`groups`: how many, or their sizes), s_m
the cosine of the m-th group, F_m that of the ensemble so far. l is the binomial deviance. The
weights w, its negative derivative by z, are constants of the gradient. No same or no different
pair: that mean is 0.

Opitz et al., BIER: Boosting independent embeddings robustly, ICCV 2017, and Deep metric learning
with BIER, TPAMI 2018 (arXiv 1801.04815). Constants, the two means, the first weight and the
derivative by z (by s it would be larger by scale or cost scale) are those of the authors' published
code. Left out are both auxiliary losses that make the learners differ: they act on the embedding
layer alone and hold its weights' lengths at 1, which a loss on embeddings does not see. That of
A-BIER is there for embeddings, as the regularizer `adversarial`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional

from kinspace._core import checks
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.references import compared
from kinspace._core.samples import Anchors, Labels, Reference, takes_samples
from kinspace._core.tensor_ops import zero_with_grad
from kinspace._core.vectors import Groups, checked_groups, fill_diagonal, group_sizes, unit

__all__ = ["BIER", "bier_loss"]


@takes_samples
@takes_options(
    groups=checked_groups, scale=checks.positive, margin=checks.number, cost=checks.positive
)
def bier_loss(  # noqa: PLR0913 (an option each)
    embeddings: Tensor,
    labels: Labels,
    *,
    groups: Groups = 3,
    scale: float = 2.0,
    margin: float = 0.5,
    cost: float = 25.0,
    reference: Tensor | None = None,
    reference_labels: Labels | None = None,
    includes_batch: bool = False,
    **samples: Unpack[Anchors],
) -> Tensor:
    """BIER's boosted binomial deviance (module docstring).

    Two learners of one dimension; the only pair is of one class. The first is right (cosine 1,
    z = 1), so that the second, which is wrong (cosine -1, z = -3), has the weight 1 / (1 + e):
    half of log(1 + e^-1) + log(1 + e^3) / (1 + e).

    >>> x = torch.tensor([[1.0, 1.0], [1.0, -1.0]])
    >>> bier_loss(x, torch.tensor([0, 0]), groups=2)
    tensor(0.5666)
    """
    reference, index = compared(embeddings, labels, reference, reference_labels, includes_batch)
    sizes = group_sizes(groups, embeddings.shape[1])
    different, same = index.different.to(embeddings.dtype), index.same.to(embeddings.dtype)
    if index.excludes_itself:
        same = fill_diagonal(same, 0.0)
    steepness = scale * same - cost * scale * different  # (batch, batch)
    mean = same / same.sum().clamp(min=1) + different / different.sum().clamp(min=1)
    weight, ensemble, total = torch.ones_like(steepness), steepness, zero_with_grad(embeddings)
    rows = embeddings if reference is None else reference
    learners = zip(embeddings.split(sizes, 1), rows.split(sizes, 1), strict=True)
    for number, (part, other) in enumerate(learners, start=1):
        x = unit(part)
        z = steepness * (x @ (x if reference is None else unit(other)).T - margin)  # (batch, batch)
        total = total - (mean * weight * functional.logsigmoid(z)).sum()
        # z is linear in the cosine: that of the ensemble is the ensemble's mean of z
        step = 2 / (number + 1)
        ensemble = z.detach() if number == 1 else torch.lerp(ensemble, z.detach(), step)
        weight = (-ensemble).sigmoid()
    return total / len(sizes)


class BIER(nn.Module):
    """`bier_loss` as a module. Give the head of the model the same groups.

    >>> BIER(groups=(96, 160, 256))
    BIER(groups=(96, 160, 256), scale=2.0, margin=0.5, cost=25.0)
    """

    __call__: Callable[..., Tensor]
    extra_repr = options_repr

    def __init__(
        self,
        *,
        groups: Groups = 3,
        scale: float = 2.0,
        margin: float = 0.5,
        cost: float = 25.0,
    ) -> None:
        super().__init__()
        keep_options(self, bier_loss, groups=groups, scale=scale, margin=margin, cost=cost)

    def forward(self, embeddings: Tensor, labels: Labels, **inputs: Unpack[Reference]) -> Tensor:
        return bier_loss(embeddings, labels, **kept_options(self), **inputs)
