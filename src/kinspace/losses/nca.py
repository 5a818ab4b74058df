"""NCA: the log probability that a sample's soft nearest neighbor is of its class.

    L = mean_i -log( sum_{j same} exp(-||x_i - x_j||^2) / sum_{j != i} exp(-||x_i - x_j||^2) )

or with another `distance` in the exponents. A sample alone in its class has term 0 and still counts
in the mean.

Goldberger et al., Neighbourhood components analysis, NIPS 2004; Magnet paper Eq. 8, whose print
keeps the sample itself in both sums (a constant exp(0) that hides the rest); here it is left out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.distances import DISTANCES, distance_table
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.references import related
from kinspace._core.samples import Anchors, Labels, Reference, takes_samples
from kinspace._core.tensor_ops import REDUCTIONS, log_sum_exp, reduce

__all__ = ["NCA", "nca_loss"]


@takes_samples
@takes_options(distance=checks.one_of(DISTANCES), reduction=checks.one_of(REDUCTIONS))
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

    __call__: Callable[..., Tensor]
    extra_repr = options_repr

    def __init__(self, *, distance: str = "squared_euclidean", reduction: str = "mean") -> None:
        super().__init__()
        keep_options(self, nca_loss, distance=distance, reduction=reduction)

    def forward(self, embeddings: Tensor, labels: Labels, **inputs: Unpack[Reference]) -> Tensor:
        return nca_loss(embeddings, labels, **kept_options(self), **inputs)
