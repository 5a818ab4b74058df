"""The ablation of ALMN with one fixed angular margin for all samples, as in L-softmax.

    L = mean_i log(1 + sum_{j: y_j != y_i} exp(x_j . c_i - ||x_i|| ||c_i|| psi(t_i)))
        + w/(2N) sum_i ||x_i||^2
    psi(t) = (-1)^k cos(m t) - 2k,   k = min(floor(m t / pi), m - 1)

t_i is the angle between x_i and its class center c_i (a constant), m the multiplier. cos(m t) is
the Chebyshev polynomial of cos t, so its gradient stays finite where that of the angle does not.

ALMN paper Eq. 12; Liu et al., Large-margin softmax loss, ICML 2016.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from kinspace import checks
from kinspace.losses.centers import follow, register_centers
from kinspace.losses.n_pair import anchored_softmax, squared_norms
from kinspace.numerics import full_precision, unit
from kinspace.pairs import class_table

__all__ = ["FixedMargin", "fixed_margin_loss"]


@full_precision
def fixed_margin_loss(
    embeddings: Tensor,
    labels: Tensor,
    centers: Tensor,
    *,
    multiplier: int = 2,
    norm_weight: float = 5e-4,
) -> Tensor:
    """N-pair loss around centers with the angle to the own center multiplied (module docstring).

    >>> fixed_margin_loss(torch.eye(2), torch.tensor([0, 1]), torch.eye(2), norm_weight=0.0)
    tensor(0.3133)
    """
    checks.whole("multiplier", multiplier, at_least=1)
    checks.finite("norm_weight", norm_weight, at_least=0)
    centers = checks.matching_rows("centers", centers, embeddings).detach()
    labels = checks.with_labels(embeddings, labels, len(centers))
    return _loss(embeddings, labels, centers.index_select(0, labels), multiplier, norm_weight)


@full_precision
def _loss(
    embeddings: Tensor, labels: Tensor, own: Tensor, multiplier: int, norm_weight: float
) -> Tensor:
    lengths = torch.linalg.vector_norm(embeddings, dim=1) * torch.linalg.vector_norm(own, dim=1)
    cosine = (unit(embeddings) * unit(own)).sum(1)
    positive = lengths * _multiplied(cosine, multiplier)
    terms = anchored_softmax(own, embeddings, positive, class_table(labels)[0])
    return terms.mean() + squared_norms(embeddings, norm_weight)


def _multiplied(cosine: Tensor, multiplier: int) -> Tensor:
    """psi of the angle, from its cosine."""
    angle = cosine.detach().clamp(-1, 1).acos()
    turns = (angle * (multiplier / math.pi)).floor().clamp(max=multiplier - 1)
    before, chebyshev = torch.ones_like(cosine), cosine
    for _ in range(multiplier - 1):
        before, chebyshev = chebyshev, 2 * cosine * chebyshev - before
    return torch.where(turns % 2 == 0, chebyshev, -chebyshev) - 2 * turns


class FixedMargin(nn.Module):
    """`fixed_margin_loss` with its class centers, kept and moved as in `ALMN`.

    >>> criterion = FixedMargin(num_classes=2, dim=3, multiplier=2)
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
        multiplier: int = 2,
        norm_weight: float = 5e-4,
        rate: float = 0.5,
    ) -> None:
        super().__init__()
        self.multiplier = checks.whole("multiplier", multiplier, at_least=1)
        self.norm_weight = checks.finite("norm_weight", norm_weight, at_least=0)
        self.rate = checks.finite("rate", rate)
        register_centers(self, num_classes, dim)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        labels, own = follow(self, embeddings, labels)
        return _loss(embeddings, labels, own, self.multiplier, self.norm_weight)

    def extra_repr(self) -> str:
        return f"multiplier={self.multiplier}, norm_weight={self.norm_weight}"
