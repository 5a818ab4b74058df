"""Metrics of clustering: how far clusters found without labels agree with the classes.

    nmi           2 I(classes; clusters) / (H(classes) + H(clusters))
    ami           the mutual information above that expected by chance, over its largest possible
                  value above it, with the mean of the two entropies as the largest
    pairwise_f1   2 P R / (P + R) over pairs of samples: P the share of pairs in one cluster that
                  are of one class, R the share of pairs of one class that are in one cluster

The clusters are those of K-means with K the number of classes: all vectors into thousands of
clusters, in blocks, on a CPU or a GPU. (`kinspace.clustering.kmeans` runs many small K-means, one
in every class.)

    minimize   sum over samples x:  ||x - mean of its cluster||^2

The seeds are those of greedy K-means++ (Arthur and Vassilvitskii, 2007): candidates are drawn in
proportion to the squared distance to the seeds so far, and the best of a few is kept. Here each
round adds one seed for every 64 there are, so that thousands of seeds cost as much as a few steps.

Then follow Lloyd's steps. A step compares samples whose own center has moved with all centers, and
the other samples only with the centers that have moved. The clusters are the same as with all
comparisons, and after two or three steps little is left to compare.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kinspace._core import checks
from kinspace._core.vectors import unit
from kinspace.clustering.kmeans import cluster_means
from kinspace.evaluation.similarity import Labels, Vectors, class_numbers, labels_of, with_labels

__all__ = ["Clustering", "ami", "clustering_metrics", "kmeans", "nmi", "pairwise_f1"]

BLOCK = {"cpu": 2**22, "cuda": 2**28}  # numbers in a block of distances
GROWTH = 64  # a round adds one seed for every GROWTH there are
TRIALS = 6  # candidates for each seed
TOLERANCE = 1e-4  # share of the inertia: a step that gains less is the last


def nmi(labels: Labels, clusters: Labels) -> float:
    """Normalized mutual information; 1 if both put all samples together, 0 if one of them does.

    The value of scikit-learn's `normalized_mutual_info_score`.

    >>> nmi(np.array([0, 0, 1, 1]), np.array([5, 5, 7, 7]))
    1.0
    >>> nmi(np.array([0, 0, 1, 1]), np.array([0, 0, 0, 0]))
    0.0
    """
    from sklearn.metrics import normalized_mutual_info_score  # takes a second to import

    # Rounding may leave a value just below 1 for the same partition.
    found = float(normalized_mutual_info_score(*_both(labels, clusters)))
    return 1.0 if found > 1 - 1e-14 else found


def ami(labels: Labels, clusters: Labels) -> float:
    """Adjusted mutual information (Vinh et al., 2010): about 0 by chance, 1 for the same partition.

    The expectation over random partitions depends on the sizes of the classes and clusters alone,
    so it is computed once for each pair of sizes that occur. With 100,000 samples in 10,000 classes
    this takes 0.02 s; scikit-learn's, which computes it for each class and cluster, 44 s.

    >>> ami(np.array([0, 0, 1, 1]), np.array([5, 5, 7, 7]))
    1.0
    >>> round(ami(np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])), 4)
    -0.5
    """
    table, rows, columns = _contingency(labels, clusters)
    if len(table.counts) == len(rows) == len(columns):  # the same partition
        return 1.0
    expected = _expected_information(rows, columns)
    most = (_entropy(rows) + _entropy(columns)) / 2
    return float((_information(table, rows, columns) - expected) / (most - expected))


def _information(table: _Counts, rows: NDArray[np.float64], columns: NDArray[np.float64]) -> float:
    total = rows.sum()
    chance = rows[table.rows] * columns[table.columns]
    return float((table.counts / total * np.log(table.counts * total / chance)).sum())


def _expected_information(rows: NDArray[np.float64], columns: NDArray[np.float64]) -> float:
    total = int(rows.sum())
    log_factorial = np.concatenate([[0.0], np.log(np.arange(1, total + 1)).cumsum()])
    expected = 0.0
    sizes, times = np.unique(columns.astype(np.int64), return_counts=True)
    for a, often in zip(*np.unique(rows.astype(np.int64), return_counts=True), strict=True):
        for b, frequent in zip(sizes, times, strict=True):
            n = np.arange(max(1, a + b - total), min(a, b) + 1)
            lf = log_factorial
            chance = lf[a] + lf[b] + lf[total - a] + lf[total - b] - lf[total]
            chance = chance - lf[n] - lf[a - n] - lf[b - n] - lf[total - a - b + n]
            gain = n / total * (np.log(n) + np.log(total) - np.log(a) - np.log(b))
            expected += often * frequent * float((gain * np.exp(chance)).sum())
    return expected


def pairwise_f1(labels: Labels, clusters: Labels) -> float:
    """F1 over pairs of samples, 0 if no pair of one class is in one cluster.

    >>> round(pairwise_f1(np.array([0, 0, 0, 1]), np.array([0, 0, 1, 1])), 4)  # P 1/2, R 1/3
    0.4
    """
    table, rows, columns = _contingency(labels, clusters)
    both, same_class, same_cluster = (
        float((counts * (counts - 1) / 2).sum()) for counts in (table.counts, rows, columns)
    )
    return 2 * both / (same_class + same_cluster) if both else 0.0


@dataclass(frozen=True)
class _Counts:
    """The nonzero cells of the table of classes by clusters."""

    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    counts: NDArray[np.float64]


def _both(labels: Labels, clusters: Labels) -> tuple[NDArray[Any], NDArray[Any]]:
    if labels is None or clusters is None:
        raise ValueError("labels, clusters: expected one of each for every sample, got None")
    ours = class_numbers(labels_of(np.empty((len(labels), 1)), labels))[0].numpy()
    theirs = labels_of(np.empty((len(labels), 1)), clusters, name="clusters")
    if not len(ours):
        raise ValueError("labels: expected at least one, got none")
    return ours, class_numbers(theirs)[0].numpy()


def _contingency(
    labels: Labels, clusters: Labels
) -> tuple[_Counts, NDArray[np.float64], NDArray[np.float64]]:
    ours, theirs = _both(labels, clusters)
    width = int(theirs.max()) + 1
    cells, counts = np.unique(ours * width + theirs, return_counts=True)
    table = _Counts(cells // width, cells % width, counts.astype(np.float64))
    return table, np.bincount(ours).astype(np.float64), np.bincount(theirs).astype(np.float64)


def _entropy(counts: NDArray[np.float64]) -> float:
    shares = counts / counts.sum()
    return float(-(shares * np.log(shares)).sum())


def clustering_metrics(
    vectors: Vectors,
    labels: Labels = None,
    *,
    restarts: int = 5,
    seed: int = 0,
    iterations: int = 100,
    metric: str = "cosine",
    device: str | torch.device | None = None,
) -> dict[str, float]:
    """NMI, AMI and pairwise F1 of K-means with K the number of classes: mean and spread.

    K-means runs once for each of `restarts` seeds; "nmi" is the mean and "nmi_spread" the sample
    standard deviation (0 for one restart), likewise for "ami", "f1" and "inertia". metric: "cosine"
    clusters the vectors normalized to length 1, "euclidean" as they are.

    >>> x = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> found = clustering_metrics(x, np.array([0, 0, 1, 1]), restarts=2)
    >>> found["nmi"], found["nmi_spread"], found["f1"]
    (1.0, 0.0, 1.0)
    """
    checks.integer("restarts", restarts, at_least=1)
    tensor, classes = with_labels(vectors, labels, device=device)
    if checks.choice("metric", metric, ("cosine", "euclidean")) == "cosine":
        tensor = unit(tensor)
    count, truth = int(classes.max()) + 1, classes.cpu().numpy()
    found: dict[str, list[float]] = {"nmi": [], "ami": [], "f1": [], "inertia": []}
    for start in range(restarts):
        result = kmeans(tensor, count, seed=seed + start, iterations=iterations)
        clusters = result.clusters.cpu().numpy()
        found["nmi"].append(nmi(truth, clusters))
        found["ami"].append(ami(truth, clusters))
        found["f1"].append(pairwise_f1(truth, clusters))
        found["inertia"].append(result.inertia)
    means = {name: float(np.mean(values)) for name, values in found.items()}
    spread = {
        f"{name}_spread": float(np.std(values, ddof=1)) if restarts > 1 else 0.0
        for name, values in found.items()
    }
    return means | spread | {"clusters": count, "restarts": restarts}


@dataclass(frozen=True, eq=False)
class Clustering:
    """The clusters of K-means."""

    clusters: Tensor  # (samples,)
    centers: Tensor  # (clusters, dim)
    inertia: float  # sum of the squared distances to the own center


@torch.no_grad()
def kmeans(vectors: Tensor, count: int, *, seed: int = 0, iterations: int = 100) -> Clustering:
    """K-means of all vectors, in float32 or float64, in blocks, on their device.

    A cluster that loses all its samples takes the sample farthest from its center.

    >>> found = kmeans(torch.tensor([[0.0], [1.0], [8.0], [9.0]]), 2)
    >>> found.clusters[0] == found.clusters[1] != found.clusters[2] == found.clusters[3]
    tensor(True)
    >>> found.inertia
    1.0
    """
    checks.vectors("vectors", vectors)
    count = min(checks.integer("count", count, at_least=1), len(vectors))
    checks.integer("iterations", iterations, at_least=1)
    middle = vectors.mean(0, dtype=torch.float64).to(vectors.dtype)
    points = vectors - middle  # products lose digits far from 0
    norms = torch.linalg.vector_norm(points, dim=1, dtype=torch.float64).square_()
    with torch.autocast(vectors.device.type, enabled=False):
        centers = points[_seeds(points, norms, count, seed)]
        clusters, squares = _nearest(points, norms, centers)
        before = math.inf
        for step in range(iterations):
            _fill_empty(clusters, squares, count)
            inertia = float(squares.sum())
            means = cluster_means(points, clusters, clusters.bincount(minlength=count))
            moved, centers = (means != centers).any(1), means
            if inertia >= before * (1 - TOLERANCE) or step == iterations - 1:
                break
            before = inertia
            _reassign(points, norms, centers, moved, (clusters, squares))
    inertia = float((points - centers[clusters]).double().square_().sum())
    return Clustering(clusters, centers + middle, inertia)


def _seeds(points: Tensor, norms: Tensor, count: int, seed: int) -> Tensor:
    """The rows of the seeds, by greedy K-means++ in rounds."""
    generator = torch.Generator().manual_seed(seed)  # on the CPU: the same for every device
    chosen = torch.randint(len(points), (1,), generator=generator).to(points.device)
    closest = torch.full_like(norms, math.inf)
    latest = chosen
    while len(chosen) < count:
        closest = torch.minimum(closest, _nearest(points, norms, points[latest])[1])
        closest[latest] = 0
        number = min(count - len(chosen), max(1, len(chosen) // GROWTH))
        drawn = min(number * TRIALS, len(points) - len(chosen))
        candidates = _draw(closest, chosen, drawn, generator)
        gains = _gains(points, closest - norms, points[candidates])
        latest = candidates[gains.topk(number).indices]
        chosen = torch.cat([chosen, latest])
    return chosen


def _gains(points: Tensor, offsets: Tensor, candidates: Tensor) -> Tensor:
    """By how much each candidate, alone, would lower the sum of squared distances."""
    norms = candidates.square().sum(1)
    gains = torch.zeros(len(candidates), dtype=torch.float64, device=points.device)
    for part in _parts(points, len(candidates)):
        products = torch.addmm(norms, points[part], candidates.T, beta=-1, alpha=2)
        gained = products.add_(offsets[part, None].to(products.dtype)).clamp_(min=0)
        gains += gained.sum(0, dtype=torch.float64)
    return gains


def _draw(weights: Tensor, taken: Tensor, number: int, generator: torch.Generator) -> Tensor:
    """A sample of rows without replacement, in proportion to the weights.

    The largest of log(u) / w, u uniform, are such a sample (Efraimidis and Spirakis, 2006). If too
    few weights are positive, other rows that are not taken fill it up.
    """
    uniform = torch.rand(len(weights), generator=generator, dtype=torch.float64)
    keys = uniform.clamp_(min=1e-300).log_().to(weights.device) / weights
    keys.masked_fill_(weights == 0, -1e300)[taken] = -math.inf
    return keys.topk(number).indices


def _nearest(points: Tensor, norms: Tensor, centers: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest center of each point and its squared distance, float64."""
    half = centers.square().sum(1).div_(2)
    best = torch.empty_like(norms)
    clusters = torch.empty(len(points), dtype=torch.int64, device=points.device)
    for part in _parts(points, len(centers)):
        closeness, clusters[part] = torch.addmm(half, points[part], centers.T, beta=-1).max(1)
        best[part] = closeness
    return clusters, (norms - 2 * best).clamp_(min=0)


def _reassign(
    points: Tensor, norms: Tensor, centers: Tensor, moved: Tensor, found: tuple[Tensor, Tensor]
) -> None:
    """Bring the clusters of the points and their squared distances up to date, in place."""
    clusters, squares = found
    behind = moved[clusters]
    rows = behind.nonzero()[:, 0]
    if len(rows):
        clusters[rows], squares[rows] = _nearest(points[rows], norms[rows], centers)
    rows, places = (~behind).nonzero()[:, 0], moved.nonzero()[:, 0]
    if len(rows) and len(places):
        nearest, reached = _nearest(points[rows], norms[rows], centers[places])
        better = reached < squares[rows]
        clusters[rows[better]] = places[nearest[better]]
        squares[rows[better]] = reached[better]


def _parts(points: Tensor, columns: int) -> Iterator[slice]:
    step = max(1, BLOCK.get(points.device.type, BLOCK["cpu"]) // columns)
    return (slice(at, at + step) for at in range(0, len(points), step))


def _fill_empty(clusters: Tensor, squares: Tensor, count: int) -> None:
    """Give each empty cluster the farthest sample of a cluster of several, in place."""
    sizes = clusters.bincount(minlength=count)
    empty = (sizes == 0).nonzero()[:, 0].tolist()
    if not empty:
        return
    left, owners = sizes.tolist(), clusters.tolist()
    for place in squares.argsort(descending=True, stable=True).tolist():
        if left[owners[place]] > 1:
            left[owners[place]] -= 1
            clusters[place] = empty.pop()
            squares[place] = 0
            if not empty:
                return
