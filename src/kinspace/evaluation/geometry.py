"""The geometry of an embedding: how compact and how far apart classes are, and its dimensions.

    density of c    mean over the samples of c of |x - mu_c|^2; Li et al., DML-DA, 2019, Eq. 5
    alignment       mean over pairs of one class of |x - y|^2; Wang and Isola, ICML 2020
    uniformity      log of the mean over all pairs of exp(-2 |x - y|^2); the same, at length 1
    effective rank  exp of the entropy of the singular values' shares; Roy and Vetterli, 2007
    spectral decay  KL of uniform shares to those of the singular values; Roth et al., ICML 2020
                    (0: all directions are used equally; large: few directions are)

For "cosine" the vectors are first normalized to length 1; for "euclidean" they are used as given.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kinspace._core import checks
from kinspace._core.class_index import class_means, class_sums
from kinspace.evaluation.retrieval import KS, recall_at_k
from kinspace.evaluation.similarity import (
    METRICS,
    Labels,
    Vectors,
    labels_of,
    nearest,
    unit_rows,
    vectors_of,
)

__all__ = ["ClassGeometry", "alignment", "class_geometry", "recall_gap", "spectrum", "uniformity"]

BLOCK = {"cpu": 2**22, "cuda": 2**27}  # numbers in a block of distances
ROWS = 4096  # differences to class means at a time


@dataclass(frozen=True, eq=False)
class ClassGeometry:
    """Arrays with one entry per class."""

    labels: NDArray[Any]
    counts: NDArray[np.int64]
    density: NDArray[np.float64]  # mean squared distance to the class's own mean
    gap: NDArray[np.float64]  # distance from that mean to the nearest other one; NaN for one class
    neighbor: NDArray[Any]  # the label of that class

    def summary(self) -> dict[str, float]:
        """Mean spread within classes ("intra"), mean gap between them ("inter"), their ratio."""
        several = self.counts > 1
        intra = float(np.sqrt(self.density[several]).mean()) if several.any() else math.nan
        inter = float(self.gap.mean())
        return {
            "intra": intra,
            "inter": inter,
            "intra_to_inter": intra / inter if inter else math.inf,
        }


def class_geometry(
    vectors: Vectors, labels: Labels = None, *, metric: str = "cosine"
) -> ClassGeometry:
    """The density and the nearest other class of each class.

    >>> x, y = np.array([[0.0], [2.0], [5.0]]), np.array([7, 7, 9])
    >>> found = class_geometry(x, y, metric="euclidean")
    >>> found.labels, found.density, found.gap, found.neighbor
    (array([7, 9]), array([1., 0.]), array([4., 4.]), array([9, 7]))
    """
    points = _points(vectors_of(vectors), metric)
    names, numbers = np.unique(labels_of(vectors, labels), return_inverse=True)
    classes = torch.from_numpy(numbers.astype(np.int64)).to(points.device)
    means, counts = class_means(points, classes, len(names))
    parts = zip(points.split(ROWS), classes.split(ROWS), strict=True)
    offsets = torch.cat([(part - means[own]).square().sum(1) for part, own in parts])
    density = class_sums(offsets, classes, len(names)) / counts
    gap, neighbor = np.full(len(names), np.nan), names
    if len(names) > 1:
        squares, index = nearest(means, 1, metric="euclidean")
        gap = squares[:, 0].neg().sqrt().cpu().numpy()
        neighbor = names[index[:, 0].cpu().numpy()]
    return ClassGeometry(names, counts.long().cpu().numpy(), density.cpu().numpy(), gap, neighbor)


def alignment(vectors: Vectors, labels: Labels = None) -> float:
    """Mean squared distance of pairs of one class at length 1; NaN without such pairs.

    It is computed from sums over each class: the sum over its pairs is n sum |x|^2 - |sum x|^2.

    >>> alignment(np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 5.0]]), np.array([0, 0, 1]))
    2.0
    """
    points = unit_rows(vectors_of(vectors))
    numbers = np.unique(labels_of(vectors, labels), return_inverse=True)[1]
    classes = torch.from_numpy(numbers.astype(np.int64)).to(points.device)
    number = int(numbers.max()) + 1
    sums, counts = class_sums(points, classes, number), classes.bincount(minlength=number)
    squares = torch.linalg.vector_norm(points, dim=1).square_()
    lengths = class_sums(squares, classes, number)
    pairs = float((counts * (counts - 1) / 2).sum())
    total = float((counts * lengths - sums.square().sum(1)).clamp_(min=0).sum())
    return total / pairs if pairs else math.nan


def uniformity(vectors: Vectors) -> float:
    """log mean exp(-2 |x - y|^2) over all pairs at length 1; lower is more uniform.

    >>> round(uniformity(np.array([[1.0, 0.0], [0.0, 1.0]])), 6)
    -4.0
    """
    points = unit_rows(vectors_of(vectors), torch.float32)
    count = len(points)
    if count < 2:
        raise ValueError("vectors: expected at least two, got one")
    squares, total = points.square().sum(1), 0.0
    side = max(1, math.isqrt(BLOCK.get(points.device.type, BLOCK["cpu"])))
    for row in range(0, count, side):
        for column in range(row, count, side):
            rows, columns = slice(row, row + side), slice(column, column + side)
            with torch.autocast(points.device.type, enabled=False):
                products = points[rows] @ points[columns].T
            apart = products.mul_(-2).add_(squares[rows, None]).add_(squares[columns])
            nearness = apart.clamp_(min=0).mul_(-2).exp_()
            kept = nearness.triu_(1) if row == column else nearness  # i < j
            total += float(kept.sum(dtype=torch.float64))
    return math.log(total / (count * (count - 1) / 2))


def spectrum(vectors: Vectors, *, metric: str = "cosine") -> dict[str, Any]:
    """The singular values of the centered vectors as shares of their sum; their rank and decay.

    >>> found = spectrum(np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]))
    >>> found["shares"], round(found["effective_rank"], 6), round(found["decay"], 6)
    (array([0.5, 0.5]), 2.0, 0.0)
    """
    given = vectors_of(vectors)
    points = _points(given, metric)
    size = float(points.norm())
    points -= points.mean(0)
    values = torch.linalg.eigvalsh(points.T @ points).clamp_(min=0).sqrt().flip(0)
    total = float(values.sum())
    rounding = torch.finfo(given.dtype).eps * math.sqrt(points.shape[1]) * size
    if total <= rounding:
        raise ValueError("vectors: expected some that differ, got all the same")
    shares = (values / total).cpu().numpy()
    kept = shares[shares > 0]
    entropy = float(-(kept * np.log(kept)).sum())
    floor = np.maximum(shares, np.finfo(np.float64).eps)  # an unused direction: large, not infinite
    decay = float((np.log(1 / len(shares)) - np.log(floor)).mean())
    return {"shares": shares, "effective_rank": math.exp(entropy), "decay": decay}


def recall_gap(
    train: Vectors,
    train_labels: Labels,
    test: Vectors,
    test_labels: Labels,
    *,
    ks: Sequence[int] = KS,
    metric: str = "cosine",
) -> dict[int, float]:
    """Recall@k on the training classes minus Recall@k on the test classes: the generalization gap.

    >>> x = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> recall_gap(x, np.array([0, 0, 1, 1]), x, np.array([0, 1, 0, 1]), ks=(1,))
    {1: 1.0}
    """
    ours = recall_at_k(train, train_labels, ks, metric=metric)
    theirs = recall_at_k(test, test_labels, ks, metric=metric)
    return {k: ours[k] - theirs[k] for k in ours}


def _points(vectors: Tensor, metric: str) -> Tensor:
    """A float64 copy, for the cosine with rows of length 1."""
    if checks.choice("metric", metric, METRICS) == "cosine":
        return unit_rows(vectors)
    return vectors.to(torch.float64, copy=True)
