"""K-means in every class: `class_kmeans`.

Each class gets its own clusters, and a sample is only ever measured against those of its class: no
table of all samples by all clusters is made. `kinspace.clustering.lloyd` describes the algorithm,
`kinspace.clustering.choice_of_k` how "auto" counts the modes of a class.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from kinspace._core import checks
from kinspace.clustering.choice_of_k import RESTARTS, clusters_by_modes
from kinspace.clustering.lloyd import kmeans, own, trials
from kinspace.clustering.padded_classes import padded_classes

__all__ = ["ClassClusters", "class_kmeans", "cluster_means", "cluster_numbers"]

PART = 256  # samples of a cluster up to which float32 sums keep six digits


@dataclass(frozen=True)
class ClassClusters:
    """The clusters of all classes, numbered by class and then by their first sample."""

    clusters: Tensor  # (samples,) the cluster of each sample
    centers: Tensor  # (clusters, dim) their means
    cluster_labels: Tensor  # (clusters,) the class of each cluster
    inertia: float  # sum of the squared distances of the samples to their centers


@torch.no_grad()
def class_kmeans(
    embeddings: Tensor,
    labels: Tensor,
    clusters_per_class: int | Literal["auto"],
    *,
    max_clusters: int = 8,
    seed: int = 0,
    iterations: int = 50,
    restarts: int = 1,
) -> ClassClusters:
    """K-means++ and Lloyd's steps within each class, all classes at once (see `lloyd`).

    clusters_per_class: as many for each class, or fewer where a class has fewer distinct samples;
    "auto" gives a class as many as it has modes, up to max_clusters (see `choice_of_k`).
    iterations: Lloyd's steps at most; restarts: the best of so many, at least 4 for "auto".

    >>> x = torch.tensor([[0.0], [1.0], [8.0], [9.0], [5.0], [5.0]])
    >>> found = class_kmeans(x, torch.tensor([0, 0, 0, 0, 7, 7]), 2)
    >>> found.clusters, found.cluster_labels, found.inertia
    (tensor([0, 0, 1, 1, 2, 2]), tensor([0, 0, 7]), 1.0)
    """
    labels = checks.labels(embeddings, labels)
    most, restarts = cluster_numbers(clusters_per_class, max_clusters, iterations, restarts)
    vectors, scale = _scaled(embeddings.detach())
    ordered, order = labels.sort(stable=True)
    classes, sizes = ordered.unique_consecutive(return_counts=True)
    most = min(most, int(sizes.max()))
    # Drawn on the CPU and by class: the same for every device and for every division in groups.
    generator = torch.Generator().manual_seed(seed)
    shape = (restarts, len(classes), most, trials(most))
    draws = torch.rand(shape, generator=generator, dtype=torch.float64).to(vectors.device)
    find = clusters_by_modes if clusters_per_class == "auto" else kmeans
    within = torch.empty_like(order)  # each sample's cluster within its class
    inertia = 0.0
    with torch.autocast(vectors.device.type, enabled=False):  # it would make halves of float32
        for group in padded_classes(vectors, order, sizes, most):
            found, squares = find(group, draws[:, group.classes], iterations)
            within[group.rows[group.real]] = found[group.real]
            inertia += float(own(squares, found)[group.real].sum())
    clusters, cluster_labels = _numbered(within, order, classes, sizes, most)
    centers = cluster_means(vectors, clusters, clusters.bincount())
    if scale != 1:
        centers.mul_(scale)
    return ClassClusters(clusters, centers, cluster_labels, inertia * scale * scale)


def cluster_numbers(
    clusters_per_class: int | str, max_clusters: int, iterations: int, restarts: int
) -> tuple[int, int]:
    """Check these options; the clusters to try at most, and the restarts to make."""
    checks.integer("iterations", iterations, at_least=1)
    checks.integer("restarts", restarts, at_least=1)
    if clusters_per_class == "auto":
        return checks.integer("max_clusters", max_clusters, at_least=1), max(restarts, RESTARTS)
    if isinstance(clusters_per_class, str):
        raise ValueError(
            f"clusters_per_class: expected a whole number or 'auto', got {clusters_per_class!r}"
        )
    return checks.integer("clusters_per_class", clusters_per_class, at_least=1), restarts


def _scaled(embeddings: Tensor) -> tuple[Tensor, float]:
    """Finite numbers in float32 or float64 whose squares are in its range, and their scale."""
    if embeddings.dtype in (torch.float16, torch.bfloat16):
        embeddings = embeddings.float()
    low, high = torch.stack(embeddings.aminmax()).tolist()
    top = max(-low, high)
    if not math.isfinite(top):
        bad = len(embeddings) - int(embeddings.isfinite().all(1).sum())
        raise ValueError(
            f"embeddings: expected finite numbers, got NaN or infinity in {bad} of "
            f"{len(embeddings)} rows"
        )
    if 1e-60 < top < 1e60 or top == 0:  # the evidence for modes has fourth powers
        return embeddings, 1.0
    scale = math.ldexp(1.0, math.frexp(top)[1] - 1)  # a power of two changes no digit
    return embeddings / scale, scale


def _numbered(
    within: Tensor, order: Tensor, classes: Tensor, sizes: Tensor, most: int
) -> tuple[Tensor, Tensor]:
    """Number the clusters that have samples by class and first sample; also their classes."""
    places = torch.arange(len(order), device=order.device)
    slots = torch.arange(len(classes), device=order.device).repeat_interleave(sizes)
    names = slots * most + within[order]  # of the samples in the order of their classes
    first = torch.full((len(classes) * most,), len(order), device=order.device)
    first.scatter_reduce_(0, names, places, "amin")
    by_first = first.argsort(stable=True)
    numbers = torch.empty_like(first)
    numbers[by_first] = torch.arange(len(first), device=order.device)
    clusters = torch.empty_like(order)
    clusters[order] = numbers[names]
    return clusters, classes[by_first[: int((first < len(order)).sum())] // most]


def cluster_means(vectors: Tensor, clusters: Tensor, counts: Tensor) -> Tensor:
    """(clusters, dim); counts: the samples of each cluster.

    >>> x = torch.tensor([[1.0, 0.0], [5.0, 5.0], [3.0, 0.0]])
    >>> cluster_means(x, torch.tensor([0, 1, 0]), torch.tensor([2, 1]))
    tensor([[2., 0.],
            [5., 5.]])
    """
    order = clusters.argsort(stable=True)
    starts = counts.cumsum(0) - counts
    if int(counts.max()) <= PART:
        return nn.functional.embedding_bag(order, vectors, starts, mode="mean")
    parts = (counts + PART - 1) // PART  # of each cluster
    owners = torch.arange(len(counts), device=counts.device).repeat_interleave(parts)
    within = torch.arange(len(owners), device=counts.device) - (parts.cumsum(0) - parts)[owners]
    part_starts = starts[owners] + PART * within
    part_sums = nn.functional.embedding_bag(order, vectors, part_starts, mode="sum")
    sums = part_sums.new_zeros(len(counts), vectors.shape[1], dtype=torch.float64)
    return sums.index_add_(0, owners, part_sums.double()).div_(counts[:, None]).to(vectors.dtype)
