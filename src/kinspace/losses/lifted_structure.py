"""Lifted structure loss: each positive pair against all negatives of both of its samples.

    J_ij = log( sum_{k: y_k != y_i} exp(m - D_ik) + sum_{l: y_l != y_j} exp(m - D_jl) ) + D_ij
    L    = 1/(2|P|) sum_{(i,j) in P} max(0, J_ij)^2

P: unordered pairs of one class; D the plain distance, m the margin. The inner sums belong to the
samples, not to the pairs, so the whole takes O(N^2).

Oh Song et al., Deep metric learning via lifted structured feature embedding, CVPR 2016; NRA paper
Eq. 3.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from kinspace import checks
from kinspace.distances import distances_with_pull
from kinspace.numerics import full_precision
from kinspace.pairs import class_table
from kinspace.slopes import exponentials_, with_slopes

__all__ = ["LiftedStructure", "lifted_structure_loss"]


@full_precision
def lifted_structure_loss(embeddings: Tensor, labels: Tensor, *, margin: float = 1.0) -> Tensor:
    """Lifted structure loss (module docstring).

    One pair at distance 1 with negatives at 2 and 1: log(e^-1 + e^0) + 1 = 1.3133.

    >>> x = torch.tensor([[0.0], [1.0], [2.0]])
    >>> lifted_structure_loss(x, torch.tensor([0, 0, 1]))
    tensor(0.8623)
    """
    labels = checks.with_labels(embeddings, labels, read=False)
    checks.finite("margin", margin)
    value, slope = _value_and_slope(embeddings, labels, margin)
    return with_slopes(value, (embeddings, slope))


@torch.no_grad()
def _value_and_slope(
    embeddings: Tensor, labels: Tensor, margin: float
) -> tuple[Tensor, Callable[[], Tensor]]:
    distances, pull = distances_with_pull(embeddings, root=True)
    index, positive = class_table(labels)  # each unordered pair appears twice
    weights = (margin - distances).scatter_(1, index, -math.inf)
    sums, push = exponentials_(weights)
    push.clamp_(min=torch.finfo(push.dtype).min)  # no negative: a number to reckon with, not -inf
    other = push[:, 0][index]  # (batch, class)
    bounds = torch.logaddexp(push, other).add_(distances.gather(1, index))
    bounds = bounds.relu_().mul_(positive)
    pulls = bounds / positive.sum().clamp_(min=1)

    def slope() -> Tensor:
        # a sample's negatives count in both orders of each of its pairs, by their share there
        shares = (push - other).sigmoid_().mul_(pulls).sum(1, keepdim=True)
        return pull(weights.mul_(shares.div_(sums).mul_(-2)).scatter_add_(1, index, pulls))

    return (bounds * pulls).sum() / 2, slope


class LiftedStructure(nn.Module):
    """`lifted_structure_loss` as a module.

    >>> LiftedStructure()
    LiftedStructure(margin=1.0)
    """

    def __init__(self, *, margin: float = 1.0) -> None:
        super().__init__()
        self.margin = checks.finite("margin", margin)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return lifted_structure_loss(embeddings, labels, margin=self.margin)

    def extra_repr(self) -> str:
        return f"margin={self.margin}"
