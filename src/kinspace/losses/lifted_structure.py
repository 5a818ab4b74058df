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

import torch
from torch import Tensor, nn

from kinspace import checks
from kinspace.distances import euclidean_distances
from kinspace.numerics import full_precision, log_sum_exp
from kinspace.pairs import class_table

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
    distances = euclidean_distances(embeddings)
    index, positive = class_table(labels)  # each unordered pair appears twice
    push = log_sum_exp(margin - distances, without=index)
    alone = push == -math.inf  # no negative at all
    push = push.masked_fill(alone, 0)  # (batch,)
    bound = torch.logaddexp(push[:, None], push[index]) + distances.gather(1, index)
    terms = bound.masked_fill(~positive | alone[:, None], 0).relu().square()
    return terms.sum() / (2 * positive.sum().clamp(min=1))


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
