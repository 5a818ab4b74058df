"""Samples and the means of their clusters, what Magnet and its NCA analogue are made of.

    d_nk = ||r_n - mu_k||^2 / (2V),   V = sum_n ||r_n - mu_{a(n)}||^2 / (s (N - 1)) + eps

mu_k is the mean of the batch's samples of cluster k and a(n) the cluster of sample n; s is the
sharpness, 1 in print. The gradient passes through mu and V.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kinspace._core import checks
from kinspace._core.class_index import ClassIndex, class_means
from kinspace._core.tensor_ops import full_precision
from kinspace._core.vectors import squared_distances

__all__ = ["checked_clusters", "cluster_variance", "given_clusters", "scaled_distances"]


LARGE = 2.0**40  # squares of such numbers, and sums of millions of them, are in range


def scaled_distances(
    embeddings: Tensor, clusters: Tensor, count: int, *, eps: float, sharpness: float = 1.0
) -> Tensor:
    """d (batch, count), infinite for a cluster without a sample.

    >>> scaled_distances(torch.tensor([[0.0], [2.0]]), torch.zeros(2).long(), 2, eps=0.0)
    tensor([[0.2500,    inf],
            [0.2500,    inf]])
    """
    unit = _unit_of_length(embeddings)  # d is the same in any unit, with eps in its square
    embeddings, eps_there = embeddings / unit, eps / unit / unit
    means, sizes = class_means(embeddings, clusters, count)
    squares = squared_distances(embeddings, means)  # (batch, clusters)
    own = squares.gather(1, clusters[:, None])
    variance = own.sum() / (max(len(own) - 1, 1) * sharpness) + eps_there  # V
    return (squares / (2 * variance)).masked_fill(sizes == 0, math.inf)


def _unit_of_length(embeddings: Tensor) -> Tensor:
    """A power of two in which the squares of very large embeddings do not overflow; else 1."""
    largest = embeddings.detach().abs().amax()
    return torch.where(largest > LARGE, largest.log2().floor().exp2(), torch.ones_like(largest))


@full_precision
def cluster_variance(embeddings: Tensor, clusters: Tensor, count: int) -> Tensor:
    """V of a batch, with sharpness 1 and without eps; at most the largest number there is.

    >>> cluster_variance(torch.tensor([[0.0], [2.0]]), torch.zeros(2).long(), 1)
    tensor(2.)
    """
    means, _ = class_means(embeddings, clusters, count)
    offsets = embeddings - means[clusters]
    variance = offsets.square().sum() / max(len(embeddings) - 1, 1)
    return variance.clamp(max=torch.finfo(variance.dtype).max)


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
    clusters = checks.labels(embeddings, clusters, len(cluster_labels), name="clusters")
    if cluster_labels.device != embeddings.device:
        raise ValueError(
            f"cluster_labels: expected them on {embeddings.device} like the embeddings, "
            f"got {cluster_labels.device}"
        )
    return clusters, cluster_labels.long()


def given_clusters(
    embeddings: Tensor, labels: Tensor, clusters: Tensor | None, cluster_labels: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The clusters given to a module; where none are, every class of the batch is one."""
    if (clusters is None) != (cluster_labels is None):
        raise ValueError("clusters: expected both clusters and cluster_labels, or neither")
    if clusters is None or cluster_labels is None:
        present, places = ClassIndex(checks.labels(embeddings, labels)).classes
        return places, present
    return clusters, cluster_labels
