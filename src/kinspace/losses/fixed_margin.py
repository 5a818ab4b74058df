"""The ablation of ALMN with one fixed angular margin for all samples, as in L-softmax.

    L = mean_i log(1 + sum_{j: y_j != y_i} exp(x_j . c_i - ||x_i|| ||c_i|| psi(t_i)))
        + w/(2N) sum_i ||x_i||^2
    psi(t) = (-1)^k cos(m t) - 2k,   k = min(floor(m t / pi), m - 1)

t_i is the angle between x_i and its class center c_i (a constant), m the multiplier. cos(m t) is
the Chebyshev polynomial of cos t, T_m = 2 cos t T_{m-1} - T_{m-2}, so its gradient stays finite
where that of the angle does not.

ALMN paper Eq. 12; Liu et al., Large-margin softmax loss, ICML 2016.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.samples import Samples, takes_labels, takes_samples
from kinspace._core.tensor_ops import REDUCTIONS, reduce
from kinspace._core.vectors import norms, unit
from kinspace.losses.almn import center_n_pair_terms
from kinspace.losses.class_centers import ClassCenters

__all__ = ["FixedMargin", "fixed_margin_loss", "psi"]


@takes_samples
@takes_options(
    multiplier=checks.whole(1), norm_weight=checks.at_least(0), reduction=checks.one_of(REDUCTIONS)
)
def fixed_margin_loss(
    embeddings: Tensor,
    labels: Tensor,
    centers: Tensor,
    *,
    multiplier: int = 2,
    norm_weight: float = 5e-4,
    reduction: str = "mean",
    **samples: Unpack[Samples],
) -> Tensor:
    """N-pair loss around centers with the angle to the own center multiplied (module docstring).

    >>> fixed_margin_loss(torch.eye(2), torch.tensor([0, 1]), torch.eye(2), norm_weight=0.0)
    tensor(0.3133)
    """
    centers = checks.matching_rows("centers", centers, embeddings)
    labels = checks.labels(embeddings, labels, len(centers))
    own = centers.detach()[labels]
    cosine = (unit(embeddings) * unit(own)).sum(1)
    lengths = (norms(embeddings) * norms(own))[:, 0]
    positive = lengths * psi(cosine, multiplier)
    return reduce(center_n_pair_terms(embeddings, labels, own, positive, norm_weight), reduction)


def psi(cosine: Tensor, multiplier: int) -> Tensor:
    """psi of the angle, from its cosine."""
    angle = cosine.detach().clamp(-1, 1).acos()
    turns = (angle * (multiplier / math.pi)).floor().clamp(max=multiplier - 1)  # k
    before, chebyshev = torch.ones_like(cosine), cosine  # T_0, T_1
    for _ in range(multiplier - 1):
        before, chebyshev = chebyshev, 2 * cosine * chebyshev - before
    return (1 - 2 * (turns % 2)) * chebyshev - 2 * turns


class FixedMargin(nn.Module):
    """`fixed_margin_loss` with its class centers, kept and moved as in `ALMN`.

    >>> criterion = FixedMargin(num_classes=2, dim=3, multiplier=2)
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
        multiplier: int = 2,
        norm_weight: float = 5e-4,
        rate: float = 0.5,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        keep_options(
            self,
            fixed_margin_loss,
            multiplier=multiplier,
            norm_weight=norm_weight,
            reduction=reduction,
        )
        self.class_centers = ClassCenters(num_classes, dim, rate=rate)

    @property
    def centers(self) -> Tensor:
        """The centers as they stand, (classes, dim)."""
        return self.class_centers.centers

    @takes_labels
    def forward(self, embeddings: Tensor, labels: Tensor, **samples: Unpack[Samples]) -> Tensor:
        centers = self.class_centers(embeddings, labels)
        return fixed_margin_loss(embeddings, labels, centers, **kept_options(self), **samples)
