"""Lifted structure loss: each positive pair against all negatives of both of its samples.

    J_ij = log( sum_{k: y_k != y_i} exp(m - D_ik) + sum_{l: y_l != y_j} exp(m - D_jl) ) + D_ij
    L    = 1/(2|P|) sum_{(i,j) in P} max(0, J_ij)^2

P: unordered pairs of one class; D the plain distance, m the margin. The inner sums belong to the
samples, not to the pairs: with q_i = log sum_{k: y_k != y_i} exp(m - D_ik) the logarithm is that of
exp(q_i) + exp(q_j), and the whole takes O(N^2). With a reference the negatives are those of the
anchor i alone, J_ij = q_i + D_ij, and L is half the mean of their squares over its pairs.

Oh Song et al., Deep metric learning via lifted structured feature embedding, CVPR 2016; NRA paper
Eq. 3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.references import compared
from kinspace._core.samples import Anchors, Labels, Reference, takes_samples
from kinspace._core.tensor_ops import log_sum_exp
from kinspace._core.vectors import euclidean_distances

__all__ = ["LiftedStructure", "lifted_structure_loss"]


@takes_samples
@takes_options(margin=checks.number)
def lifted_structure_loss(
    embeddings: Tensor,
    labels: Labels,
    *,
    margin: float = 1.0,
    reference: Tensor | None = None,
    reference_labels: Labels | None = None,
    includes_batch: bool = False,
    **samples: Unpack[Anchors],
) -> Tensor:
    """Lifted structure loss (module docstring).

    One pair at distance 1 with negatives at 2 and 1: log(e^-1 + e^0) + 1 = 1.3133.

    >>> x = torch.tensor([[0.0], [1.0], [2.0]])
    >>> lifted_structure_loss(x, torch.tensor([0, 0, 1]))
    tensor(0.8623)
    """
    reference, index = compared(embeddings, labels, reference, reference_labels, includes_batch)
    distances = euclidean_distances(embeddings, reference)  # (batch, batch)
    push = log_sum_exp(margin - distances, index.different)  # q, (batch,)
    members, positive = index.positives  # (batch, largest class); each pair appears twice
    both = push[:, None]
    if reference is None:
        both = torch.logaddexp(both, push[members])
    bound = both + distances.gather(1, members)
    hinges = bound.relu().masked_fill(~positive, 0.0)
    return hinges.square().sum() / (2 * positive.sum().clamp(min=1))


class LiftedStructure(nn.Module):
    """`lifted_structure_loss` as a module.

    >>> LiftedStructure()
    LiftedStructure(margin=1.0)
    """

    __call__: Callable[..., Tensor]
    extra_repr = options_repr

    def __init__(self, *, margin: float = 1.0) -> None:
        super().__init__()
        keep_options(self, lifted_structure_loss, margin=margin)

    def forward(self, embeddings: Tensor, labels: Labels, **inputs: Unpack[Reference]) -> Tensor:
        return lifted_structure_loss(embeddings, labels, **kept_options(self), **inputs)
