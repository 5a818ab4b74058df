"""Clustering loss: the true clustering must score above every other by the margin of its NMI.

    L = max(0, max_S [ F(X, S) + w (1 - NMI(g(S), y)) ] - F~(X, y))
    F(X, S)  = -sum_i min_{j in S} ||x_i - x_j||
    F~(X, y) = sum_classes max_{j in class} -sum_{i in class} ||x_i - x_j||

S are as many medoids as the batch has classes, g(S) assigns each sample to its nearest medoid. The
best S is found greedily, one medoid at a time, ties by the first index; it is a constant of the
gradient. With f(n) = n log n and counts of N samples in clusters k, classes c and both,

    NMI = 2I/(H + H') = 2 (f(N) + sum_kc f(n_kc) - sum_k f(n_k) - sum_c f(n_c))
                          / (2 f(N) - sum_k f(n_k) - sum_c f(n_c))

`medoids.py` finds it in O(N^2 log C) operations.

Oh Song et al., Deep metric learning via facility location, CVPR 2017, Eq. 4-7 and algorithm 1.
Their algorithm 2, a local search by swaps after the greedy one, is left out: it is as long again
and moves the maximum little.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.class_index import ClassIndex
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.samples import Labels, Samples, takes_samples
from kinspace._core.vectors import euclidean_distances, paired_distances
from kinspace.losses.medoids import greedy_medoids

__all__ = ["Clustering", "clustering_loss"]


@takes_samples
@takes_options(margin_weight=checks.at_least(0))
def clustering_loss(
    embeddings: Tensor,
    labels: Labels,
    *,
    margin_weight: float = 1.0,
    **samples: Unpack[Samples],
) -> Tensor:
    """Clustering loss (module docstring).

    Medoids 0 and 2 recover the classes; the margin prefers two medoids in one class:
    -17 less -2, and 1 less its NMI on top, never pays, so the loss is 0.

    >>> x = torch.tensor([[0.0], [1.0], [9.0], [10.0]])
    >>> clustering_loss(x, torch.tensor([0, 0, 1, 1]))
    tensor(0.)
    """
    labels = checks.labels(embeddings, labels)
    index = ClassIndex(labels)
    with torch.no_grad():
        distances = euclidean_distances(embeddings.detach())
        # one that overflows is the farthest: no medoid is out of its reach
        distances = distances.nan_to_num(nan=torch.finfo(distances.dtype).max)
        true = _class_medoids(distances, index)
        found, nmi = greedy_medoids(distances, index.slots, margin_weight=margin_weight)
    itself = torch.arange(len(labels), device=labels.device)
    score = -paired_distances(embeddings, itself, found).sum()
    true_score = -paired_distances(embeddings, itself, true).sum()
    violation: Tensor = score + margin_weight * (1 - nmi) - true_score
    return violation.relu()


def _class_medoids(distances: Tensor, index: ClassIndex) -> Tensor:
    """For each sample that of its class with the smallest summed distance to the others."""
    members, _ = index.positives
    costs = distances.masked_fill(~index.same, 0.0).sum(1)
    return members.gather(1, costs[members].argmin(1, keepdim=True))[:, 0]


class Clustering(nn.Module):
    """`clustering_loss` as a module.

    >>> Clustering()
    Clustering(margin_weight=1.0)
    """

    __call__: Callable[..., Tensor]
    extra_repr = options_repr

    def __init__(self, *, margin_weight: float = 1.0) -> None:
        super().__init__()
        keep_options(self, clustering_loss, margin_weight=margin_weight)

    def forward(self, embeddings: Tensor, labels: Labels, **samples: Unpack[Samples]) -> Tensor:
        return clustering_loss(embeddings, labels, **kept_options(self), **samples)
