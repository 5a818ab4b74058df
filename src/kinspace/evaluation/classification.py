"""Classification by near clusters, near samples and near class means.

    kNC       argmax_c  sum_{clusters of c among the L nearest} exp(-|x - mu|^2 / (2 variance))
              Rippel et al., Magnet loss, ICLR 2016, Eq. 6
    soft kNN  the same votes from the k nearest samples; kNN: each has one vote
    nearest class mean

Distances are Euclidean for kNC and soft kNN. Votes are relative to the largest, so that none
overflows and the largest is 1. Of classes with equal votes the lowest label wins.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kinspace._core import checks
from kinspace._core.class_index import class_means
from kinspace.evaluation.similarity import (
    Labels,
    Vectors,
    labels_of,
    nearest_blocks,
    unit_rows,
    vectors_of,
)

__all__ = [
    "confusion_counts",
    "error_rate",
    "knc_predict",
    "knc_scores",
    "knn_predict",
    "merged_pairs",
    "nearest_mean_predict",
    "recovery_error",
    "soft_knn_predict",
]

SAME = 1e-12  # votes that differ by less are equal
BLOCK = 2**22  # votes of all classes computed at a time


def knc_predict(
    vectors: Vectors,
    centers: Vectors,
    center_labels: Labels,
    variance: float,
    *,
    nearest: int = 128,
) -> NDArray[Any]:
    """The class of each vector by its `nearest` clusters (all, where there are fewer).

    variance: the running variance of training (`Magnet.variance`); 0: only the nearest cluster.

    >>> centers = np.array([[0.0], [3.0], [4.0]])
    >>> knc_predict(np.array([[1.4], [1.6]]), centers, np.array([7, 5, 5]), 9.0)
    array([5, 5])
    >>> knc_predict(np.array([[1.4], [1.6]]), centers, np.array([7, 5, 5]), 9.0, nearest=1)
    array([7, 5])
    """
    votes, classes, _ = _knc_votes(vectors, centers, center_labels, variance, nearest)
    return _winners(votes, classes)


def knc_scores(
    vectors: Vectors,
    centers: Vectors,
    center_labels: Labels,
    variance: float,
    *,
    nearest: int = 128,
) -> tuple[Tensor, NDArray[Any]]:
    """The probability of each class, (rows, classes), and the labels of these classes.

    The result is one table of all rows; for many rows and classes use `knc_predict`.

    >>> centers, labels = np.array([[0.0], [2.0], [2.0]]), np.array([7, 5, 5])
    >>> knc_scores(np.array([[1.0]]), centers, labels, 1.0)
    (tensor([[0.6667, 0.3333]], dtype=torch.float64), array([5, 7]))
    """
    votes, classes, rows = _knc_votes(vectors, centers, center_labels, variance, nearest)
    scores: Tensor | None = None
    at = 0
    for part in _by_class(votes, len(classes)):
        scores = part.new_empty(rows, len(classes)) if scores is None else scores
        torch.div(part, part.sum(1, keepdim=True), out=scores[at : at + len(part)])
        at += len(part)
    assert scores is not None
    return scores, classes


def _knc_votes(
    vectors: Vectors, centers: Vectors, center_labels: Labels, variance: float, nearest: int
) -> tuple[Iterator[tuple[Tensor, Tensor]], NDArray[Any], int]:
    checks.number("variance", float(variance), at_least=0)
    queries, others, numbers, classes = _validated(vectors, centers, center_labels, "center")
    return _votes(queries, others, numbers, nearest, float(variance)), classes, len(queries)


def soft_knn_predict(
    vectors: Vectors,
    gallery: Vectors,
    gallery_labels: Labels,
    variance: float,
    *,
    k: int = 128,
) -> NDArray[Any]:
    """The class of each vector by votes exp(-d^2 / (2 variance)) of its k nearest samples.

    >>> gallery = np.array([[0.0], [1.0], [1.1]])
    >>> soft_knn_predict(np.array([[0.1]]), gallery, np.array([0, 1, 1]), 0.1, k=3)
    array([0])
    """
    checks.number("variance", float(variance), at_least=0)
    queries, others, numbers, classes = _validated(vectors, gallery, gallery_labels, "gallery")
    votes = _votes(queries, others, numbers, k, float(variance))
    return _winners(votes, classes)


def knn_predict(
    vectors: Vectors,
    gallery: Vectors | None,
    gallery_labels: Labels,
    *,
    k: int = 1,
    metric: str = "cosine",
) -> NDArray[Any]:
    """The class that most of the k nearest samples have.

    gallery None: the other vectors, whose labels are then gallery_labels.

    >>> gallery = np.array([[0.0], [1.0], [1.1]])
    >>> knn_predict(np.array([[0.1]]), gallery, np.array([0, 1, 1]), k=3, metric="euclidean")
    array([1])
    """
    others = vectors if gallery is None else gallery
    queries, table, numbers, classes = _validated(vectors, others, gallery_labels, "gallery")
    if gallery is None and len(queries) < 2:
        raise ValueError("vectors: expected at least two, to be one another's neighbors, got one")
    blocks = nearest_blocks(queries, k, gallery=None if gallery is None else table, metric=metric)
    votes = ((numbers[index], torch.ones_like(values)) for values, index in blocks)
    return _winners(votes, classes)


def nearest_mean_predict(
    vectors: Vectors, gallery: Vectors, gallery_labels: Labels, *, metric: str = "cosine"
) -> NDArray[Any]:
    """The class whose mean over the gallery is nearest; for "cosine" of vectors of length 1.

    >>> gallery = np.array([[0.0], [2.0], [6.0]])
    >>> nearest_mean_predict(
    ...     np.array([[3.0], [4.0]]), gallery, np.array([0, 0, 1]), metric="euclidean"
    ... )
    array([0, 1])
    """
    queries, others, numbers, classes = _validated(vectors, gallery, gallery_labels, "gallery")
    rows = unit_rows(others) if metric == "cosine" else others.double()
    means, _ = class_means(rows, numbers, len(classes))
    blocks = nearest_blocks(queries, 1, gallery=means, metric=metric)
    return _labels(classes, torch.cat([index[:, 0] for _, index in blocks]))


def error_rate(labels: Labels, predicted: Labels) -> float:
    """The share of samples whose predicted class is wrong.

    >>> error_rate(np.array([0, 1, 1]), np.array([0, 1, 0]))
    0.3333333333333333
    """
    truth, found = _two(labels, predicted)
    return float((truth != found).mean())


def confusion_counts(labels: Labels, predicted: Labels) -> dict[tuple[Any, Any], int]:
    """How often each (class, predicted class) occurs, most often first.

    Only pairs that occur are listed: with thousands of classes a full table would not fit.

    >>> confusion_counts(np.array([0, 1, 1, 1]), np.array([0, 2, 2, 1]))
    {(1, 2): 2, (0, 0): 1, (1, 1): 1}
    """
    truth, found = _two(labels, predicted)
    counts = Counter(zip(truth.tolist(), found.tolist(), strict=True))
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def _two(labels: Labels, predicted: Labels) -> tuple[NDArray[Any], NDArray[Any]]:
    if labels is None or predicted is None or not len(labels):
        raise ValueError("labels, predicted: expected one of each for every sample, got none")
    shape = np.empty((len(labels), 1))
    return labels_of(shape, labels), labels_of(shape, predicted, name="predicted")


def _validated(
    vectors: Vectors, others: Vectors, labels: Labels, name: str
) -> tuple[Tensor, Tensor, Tensor, NDArray[Any]]:
    """Both sides validated, the classes of the second as numbers, and their labels."""
    queries = vectors_of(vectors)
    table = vectors_of(others, device=queries.device, name=f"{name}s" if name == "center" else name)
    if table.shape[1] != queries.shape[1]:
        raise ValueError(
            f"{name}: expected {queries.shape[1]} columns like the vectors, "
            f"got shape {tuple(table.shape)}"
        )
    classes, numbers = np.unique(
        labels_of(others, labels, name=f"{name}_labels"), return_inverse=True
    )
    return queries, table, torch.from_numpy(numbers.astype(np.int64)).to(queries.device), classes


def _votes(
    queries: Tensor, others: Tensor, numbers: Tensor, k: int, variance: float
) -> Iterator[tuple[Tensor, Tensor]]:
    """The classes of the k nearest and their votes, in blocks; the vote of the nearest is 1."""
    for values, index in nearest_blocks(queries, k, gallery=others, metric="euclidean"):
        behind = values - values[:, :1]  # 0 or less
        if variance:
            logs = behind / (2 * variance)
        else:
            logs = torch.where(behind == 0, 0.0, -math.inf).to(behind.dtype)
        yield numbers[index], logs.exp()


def _by_class(blocks: Iterable[tuple[Tensor, Tensor]], classes: int) -> Iterator[Tensor]:
    for numbers, votes in blocks:
        step = max(1, BLOCK // classes)
        for at in range(0, len(votes), step):
            part = slice(at, at + step)
            table = votes.new_zeros(len(votes[part]), classes)
            yield table.scatter_add_(1, numbers[part], votes[part])


def _winners(blocks: Iterable[tuple[Tensor, Tensor]], classes: NDArray[Any]) -> NDArray[Any]:
    places = [_first_of_the_best(scores) for scores in _by_class(blocks, len(classes))]
    return _labels(classes, torch.cat(places))


def _labels(classes: NDArray[Any], places: Tensor) -> NDArray[Any]:
    found: NDArray[Any] = classes[places.cpu().numpy()]
    return found


def _first_of_the_best(scores: Tensor) -> Tensor:
    best = scores >= scores.amax(1, keepdim=True) * (1 - SAME)
    places = torch.arange(scores.shape[1], device=scores.device)
    return torch.where(best, places, scores.shape[1]).amin(1)


def merged_pairs(labels: Labels, *, seed: int = 0) -> NDArray[np.int64]:
    """Labels 0, 1, ... of classes merged in random pairs; of an odd number one stays alone.

    >>> merged = merged_pairs(np.array([4, 5, 6, 7, 4]), seed=1)
    >>> merged[0] == merged[4], sorted(np.bincount(merged).tolist())
    (np.True_, [2, 3])
    """
    if labels is None:
        raise ValueError("labels: expected one for each sample, got None")
    array = labels_of(np.empty((len(labels), 1)), labels)
    classes, numbers = np.unique(array, return_inverse=True)
    merged = np.empty(len(classes), np.int64)
    merged[np.random.default_rng(seed).permutation(len(classes))] = np.arange(len(classes)) // 2
    found: NDArray[np.int64] = merged[numbers]
    return found


def recovery_error(
    vectors: Vectors,
    labels: Labels,
    gallery: Vectors,
    gallery_labels: Labels,
    *,
    k: int = 5,
    metric: str = "cosine",
) -> dict[str, float]:
    """The errors on the true classes of a model trained on merged ones, by two classifiers.

    vectors, labels: test samples and their true classes; gallery: the training samples and theirs.

    >>> x, y = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([0, 1])
    >>> recovery_error(x, y, x[[0, 0, 1]], y[[0, 0, 1]], k=1)
    {'knn': 0.0, 'nearest_mean': 0.0}
    """
    truth: NDArray[Any] = labels_of(vectors, labels)
    knn = knn_predict(vectors, gallery, gallery_labels, k=k, metric=metric)
    means = nearest_mean_predict(vectors, gallery, gallery_labels, metric=metric)
    return {"knn": error_rate(truth, knn), "nearest_mean": error_rate(truth, means)}
