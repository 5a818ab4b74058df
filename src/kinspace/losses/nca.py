"""NCA: the log chance that a sample's soft nearest neighbor is of its class.

    L = mean_i -log( sum_{j same} exp(-||x_i - x_j||^2) / sum_{j != i} exp(-||x_i - x_j||^2) )

A sample alone in its class has term 0 and still counts in the mean.

Goldberger et al., Neighbourhood components analysis, NIPS 2004; Magnet paper Eq. 8, whose print
keeps the sample itself in both sums (a constant exp(0) that hides the rest); here it is left out.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from kinspace import checks
from kinspace.distances import squared_distances
from kinspace.numerics import full_precision, log_sum_exp
from kinspace.pairs import class_table

__all__ = ["NCA", "nca_loss"]


@full_precision
def nca_loss(embeddings: Tensor, labels: Tensor) -> Tensor:
    """NCA loss (module docstring).

    The class-mate at squared distance 1, the other at 4 and 1: mean of log(1 + e^-3), log 2, 0.

    >>> nca_loss(torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([0, 0, 1]))
    tensor(0.2472)
    """
    labels = checks.with_labels(embeddings, labels, read=False)
    index, positive = class_table(labels)
    logits = squared_distances(embeddings).neg_()
    near = log_sum_exp(logits.gather(1, index), positive)
    itself = torch.arange(len(labels), device=labels.device)[:, None]
    terms = log_sum_exp(logits, without=itself) - near
    return terms.masked_fill(near == -math.inf, 0).mean()


class NCA(nn.Module):
    """`nca_loss` as a module.

    >>> NCA()
    NCA()
    """

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return nca_loss(embeddings, labels)
