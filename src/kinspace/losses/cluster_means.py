"""Samples and the means of their clusters, what Magnet and its NCA analogue are made of.

    V = sum_n ||r_n - mu_{a(n)}||^2 / (s (N - 1)) + eps

mu_k is the mean of the batch's samples of cluster k and a(n) the cluster of sample n; s is the
sharpness, 1 in print.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from kinspace import checks
from kinspace.class_sums import class_sums
from kinspace.distances import cross_distances_with_pull
from kinspace.pairs import classes

__all__ = ["checked_clusters", "cluster_logits", "given_clusters"]


@torch.no_grad()
def cluster_logits(
    embeddings: Tensor, clusters: Tensor, count: int, eps: float, sharpness: float = 1.0
) -> tuple[Tensor, Tensor, Callable[[Tensor], Tensor]]:
    """-||r_n - mu_k||^2/(2V), (batch, count), without a graph; V without eps; and the pull.

    Clusters without a sample have -inf. The pull gives the gradient by the embeddings of a value,
    through mu and V, from that by the table, which it uses up.

    >>> logits, variance, pull = cluster_logits(torch.tensor([[0.0], [2.0]]), torch.zeros(2).long(),
    ...     count=2, eps=0.0)
    >>> logits, variance
    (tensor([[-0.2500,    -inf],
            [-0.2500,    -inf]]), tensor(2.))
    >>> pull(torch.tensor([[1.0, 0.0], [1.0, 0.0]]))  # they sum to -1/2 wherever the samples are
    tensor([[0.],
            [0.]])
    """
    sums, counts = class_sums(embeddings, clusters, count)
    sizes = counts.clamp(min=1)[:, None]
    squares, back = cross_distances_with_pull(embeddings, sums / sizes)
    column = clusters[:, None]
    own = squares.gather(1, column)
    freedom = max(len(own) - 1, 1) * sharpness
    variance = own.sum() / freedom
    scale = -0.5 / (variance + eps)
    logits = (squares * scale).masked_fill_(counts == 0, -math.inf)

    def pull(weights: Tensor) -> Tensor:
        # by the scale -1/(2V), which moves by 2 scale^2 dV; all in units of the scale
        by_own = squares.mul_(weights).sum() * scale * (2 / freedom)
        weights.scatter_add_(1, column, by_own.expand_as(column)).mul_(scale)
        by_rows, by_means = back(weights)
        return by_rows.add_(by_means.div_(sizes).index_select(0, clusters))

    return logits, variance, pull


def checked_clusters(
    embeddings: Tensor, clusters: Tensor, cluster_labels: Tensor
) -> tuple[Tensor, Tensor]:
    """The clusters of the samples and the classes of the clusters, as int64."""
    if (
        not isinstance(cluster_labels, Tensor)
        or cluster_labels.ndim != 1
        or cluster_labels.is_floating_point()
        or cluster_labels.dtype == torch.bool
    ):
        came = getattr(cluster_labels, "dtype", type(cluster_labels).__name__)
        shape = tuple(getattr(cluster_labels, "shape", ()))
        raise ValueError(
            "cluster_labels: expected a vector of integers, the class of each cluster, "
            f"got {came} of shape {shape}"
        )
    clusters = checks.with_labels(embeddings, clusters, len(cluster_labels), name="clusters")
    return clusters, cluster_labels.long()


def given_clusters(
    embeddings: Tensor, labels: Tensor, clusters: Tensor | None, cluster_labels: Tensor | None
) -> tuple[Tensor, Tensor]:
    """`checked_clusters`; where none are given every class of the batch is one cluster."""
    if (clusters is None) != (cluster_labels is None):
        raise ValueError("clusters: expected both clusters and cluster_labels, or neither")
    if clusters is None or cluster_labels is None:
        labels = checks.with_labels(embeddings, labels, read=False)
        cluster_labels, clusters = classes(labels)
        return clusters, cluster_labels
    return checked_clusters(embeddings, clusters, cluster_labels)
