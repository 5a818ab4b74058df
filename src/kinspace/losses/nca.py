"""NCA: the log probability that a sample's soft nearest neighbor is of its class.

    L = mean_i -log( sum_{j same} exp(-||x_i - x_j||^2) / sum_{j != i} exp(-||x_i - x_j||^2) )

or with another `distance` in the exponents. A sample alone in its class has term 0 and still counts
in the mean.

Goldberger et al., Neighbourhood components analysis, NIPS 2004; Magnet paper Eq. 8, whose print
keeps the sample itself in both sums (a constant exp(0) that hides the rest); here it is left out.
"""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.checks import options_repr
from kinspace._core.distances import DISTANCES, distance_table
from kinspace._core.references import related
from kinspace._core.samples import Anchors, Labels, Reference, takes_samples
from kinspace._core.tensor_ops import REDUCTIONS, log_sum_exp, reduce

__all__ = ["NCA", "nca_loss"]


@takes_samples
def nca_loss(
    embeddings: Tensor,
    labels: Labels,
    *,
    distance: str = "squared_euclidean",
    reduction: str = "mean",
    reference: Tensor | None = None,
    reference_labels: Labels | None = None,
    includes_batch: bool = False,
    **samples: Unpack[Anchors],
) -> Tensor:
    """NCA loss (module docstring).

    The class-mate at squared distance 1, the other at 4 and 1: mean of log(1 + e^-3), log 2, 0.

    >>> nca_loss(torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([0, 0, 1]))
    tensor(0.2472)
    """
    reference, index = related(embeddings, labels, reference, reference_labels, includes_batch)
    checks.choice("reduction", reduction, REDUCTIONS)
    logits = -distance_table(embeddings, reference, distance=distance)  # (batch, batch)
    # not the sample itself; a finite number, so that a sample alone has a softmax. Unseen by
    # autograd, which needs no copy for that: the probability there is 0, and so is the gradient
    if index.excludes_itself:
        logits.detach().diagonal().fill_(torch.finfo(logits.dtype).min)
    members, positive = index.positives  # (batch, largest class)
    log_probability = log_sum_exp(logits.log_softmax(1).gather(1, members), positive)
    return reduce(-log_probability.masked_fill(~positive.any(1), 0.0), reduction)


class NCA(nn.Module):
    """`nca_loss` as a module.

    >>> NCA()
    NCA(distance='squared_euclidean', reduction='mean')
    """

    def __init__(self, *, distance: str = "squared_euclidean", reduction: str = "mean") -> None:
        super().__init__()
        self.distance = checks.choice("distance", distance, DISTANCES)
        self.reduction = checks.choice("reduction", reduction, REDUCTIONS)

    def forward(self, embeddings: Tensor, labels: Labels, **inputs: Unpack[Reference]) -> Tensor:
        return nca_loss(
            embeddings,
            labels,
            distance=self.distance,
            reduction=self.reduction,
            **inputs,
        )

    def extra_repr(self) -> str:
        return options_repr(self, "distance", "reduction")
