"""Samples and the means of their clusters, what Magnet and its NCA analogue are made of.

    V = sum_n ||r_n - mu_{a(n)}||^2 / (s (N - 1)) + eps

mu_k is the mean of the batch's samples of cluster k and a(n) the cluster of sample n; s is the
sharpness, 1 in print.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from kinspace import checks, cuda_kernels
from kinspace.class_sums import LARGE, class_means
from kinspace.distances import cross_distances_with_pull
from kinspace.pairs import classes

__all__ = ["by_kernels", "checked_clusters", "cluster_logits", "fused_terms", "given_clusters"]

# of the kernels
SOURCE = Path(__file__).with_suffix(".cu")
THREADS = 256
BLOCKS = 512  # at most: each adds up a number a sample


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
    means, counts = class_means(embeddings, clusters, count)
    squares, back = cross_distances_with_pull(embeddings, means)
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
        return by_rows.add_(by_means.div_(counts.clamp(min=1)[:, None]).index_select(0, clusters))

    return logits, variance, pull


def by_kernels(embeddings: Tensor, count: int) -> bool:
    """Whether `fused_terms` takes such a batch with so many clusters."""
    return cuda_kernels.takes(embeddings) and len(embeddings) * count <= LARGE


@torch.no_grad()
def fused_terms(
    embeddings: Tensor,
    clusters: Tensor,
    cluster_labels: Tensor,
    eps: float,
    sharpness: float = 1.0,
    alpha: float | None = None,
) -> tuple[Tensor, Tensor, Callable[[], Tensor]]:
    """The loss of each sample (batch, 1), V without eps, and the gradient of the mean loss.

    By kernels: that of Magnet where there is an alpha, and else of cluster NCA.
    """
    x, clusters, labels = (each.contiguous() for each in (embeddings, clusters, cluster_labels))
    size, count, freedom = len(x), len(labels), float(max(len(x) - 1, 1) * sharpness)
    means, counts = class_means(x, clusters, count)
    squares, back = cross_distances_with_pull(x, means)
    (terms, moves), (variance, scale) = x.new_empty(2, size, 1), x.new_empty(2)
    weights = torch.empty_like(squares)
    tables = squares, clusters, labels, counts, terms, moves, weights, variance, scale
    options = freedom, float(eps), float(alpha or 0), size, count, int(alpha is None)
    grid = min(math.ceil(size / (THREADS // 32)), BLOCKS), THREADS
    cuda_kernels.run((SOURCE, "cluster_terms"), x, grid, *tables, *options)

    def slope() -> Tensor:
        slopes, by_means = back(weights)
        tables = x, clusters, means, counts, by_means, moves, scale, slopes
        grid = min(size, BLOCKS), THREADS
        cuda_kernels.run((SOURCE, "whole_slope"), x, grid, *tables, freedom, *x.shape)
        return slopes

    return terms, variance, slope


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
    if cluster_labels.device != embeddings.device:
        raise ValueError(
            f"cluster_labels: expected them on {embeddings.device} like the embeddings, "
            f"got {cluster_labels.device}"
        )
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
