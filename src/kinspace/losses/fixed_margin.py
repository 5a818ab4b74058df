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
from collections.abc import Callable

import torch
from torch import Tensor, nn

from kinspace import checks
from kinspace.losses.centers import follow, register_centers
from kinspace.losses.n_pair import center_softmax
from kinspace.numerics import full_precision
from kinspace.slopes import polar, with_slopes

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
    x = embeddings.detach()
    length, toward, _ = polar(x)
    same = labels[:, None] == labels
    positive = _positive(length, toward, own, multiplier)
    value, slope = center_softmax(x, length, own, own @ x.T, same, positive, norm_weight)
    return with_slopes(value, (embeddings, slope))


@torch.no_grad()
def _positive(
    length: Tensor, toward: Tensor, own: Tensor, multiplier: int
) -> tuple[Tensor, Callable[[], Tensor]]:
    """||x|| ||c|| psi for each sample, (batch, 1), and its slope."""
    reach, center, _ = polar(own)
    cosine = (toward * center).sum(1, keepdim=True)
    psi, steepness = _multiplied(cosine, multiplier)

    def slope() -> Tensor:
        # ||c|| psi along x, and across it ||c|| psi' times the part of the center that is there
        along = torch.addcmul(psi, steepness, cosine, value=-1)
        return (along * toward).addcmul_(steepness * (length > 0), center).mul_(reach)

    return length * reach * psi, slope


def _multiplied(cosine: Tensor, multiplier: int) -> tuple[Tensor, Tensor]:
    """psi of the angle, from its cosine, and its slope by the cosine."""
    angle = cosine.clamp(-1, 1).acos_()
    turns = angle.mul_(multiplier / math.pi).floor_().clamp_(max=multiplier - 1)
    # Chebyshev polynomials of the second kind: T_m = cos U_{m-1} - U_{m-2} and T_m' = m U_{m-1}
    before, second = torch.zeros_like(cosine), torch.ones_like(cosine)
    for _ in range(multiplier - 1):
        before, second = second, 2 * cosine * second - before
    sign = 1 - 2 * (turns % 2)
    psi = (cosine * second - before).mul_(sign).sub_(turns, alpha=2)
    return psi, (multiplier * second).mul_(sign)


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
