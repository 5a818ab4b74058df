"""NCA: the log chance that a sample's soft nearest neighbor is of its class.

    L = mean_i -log( sum_{j same} exp(-||x_i - x_j||^2) / sum_{j != i} exp(-||x_i - x_j||^2) )

A sample alone in its class has term 0 and still counts in the mean.

Goldberger et al., Neighbourhood components analysis, NIPS 2004; Magnet paper Eq. 8, whose print
keeps the sample itself in both sums (a constant exp(0) that hides the rest); here it is left out.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from kinspace import checks
from kinspace.distances import distances_with_pull
from kinspace.numerics import full_precision
from kinspace.pairs import class_table
from kinspace.slopes import exp_, with_slopes

__all__ = ["NCA", "nca_loss"]


@full_precision
def nca_loss(embeddings: Tensor, labels: Tensor) -> Tensor:
    """NCA loss (module docstring).

    The class-mate at squared distance 1, the other at 4 and 1: mean of log(1 + e^-3), log 2, 0.

    >>> nca_loss(torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([0, 0, 1]))
    tensor(0.2472)
    """
    labels = checks.with_labels(embeddings, labels, read=False)
    value, slope = _value_and_slope(embeddings, labels)
    return with_slopes(value, (embeddings, slope))


@torch.no_grad()
def _value_and_slope(embeddings: Tensor, labels: Tensor) -> tuple[Tensor, Callable[[], Tensor]]:
    index, positive = class_table(labels)
    squares, pull = distances_with_pull(embeddings)
    largest = torch.finfo(squares.dtype).max
    squares.fill_diagonal_(largest)  # not infinity: a row of nothing else would have no softmax
    chances = squares.neg_().log_softmax(1)  # the logs, (batch, batch)
    near = chances.gather(1, index).masked_fill_(~positive, -largest)  # (batch, class)
    shares = near.softmax(1)
    # less the log of the sum of the positives' chances: the greatest share is exp(top) over it
    terms = shares.amax(1, keepdim=True).log_().sub_(near.amax(1, keepdim=True))
    paired = positive.any(1, keepdim=True)

    def slope() -> Tensor:
        # by the squared distances: the share among the positives less the chance among all
        weights = exp_(chances).neg_().scatter_add_(1, index, shares)
        return pull(weights.mul_(paired.to(weights.dtype).div_(len(labels))))

    return terms.mul_(paired).mean(), slope


class NCA(nn.Module):
    """`nca_loss` as a module.

    >>> NCA()
    NCA()
    """

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return nca_loss(embeddings, labels)
