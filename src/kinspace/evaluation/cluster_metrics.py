"""Metrics of clustering: how far clusters found without labels agree with the classes.

    nmi           2 I(classes; clusters) / (H(classes) + H(clusters))
    ami           the mutual information above that expected by chance, over its largest possible
                  value above it, with the mean of the two entropies as the largest
    pairwise_f1   2 P R / (P + R) over pairs of samples: P the share of pairs in one cluster that
                  are of one class, R the share of pairs of one class that are in one cluster

The clusters are those of K-means with K the number of classes
(`kinspace.evaluation.blocked_kmeans`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kinspace._core import checks
from kinspace._core.vectors import unit
from kinspace.evaluation.blocked_kmeans import kmeans
from kinspace.evaluation.metric_inputs import Labels, Vectors, class_numbers, labels_of, with_labels

__all__ = ["ami", "clustering_metrics", "nmi", "pairwise_f1"]


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
