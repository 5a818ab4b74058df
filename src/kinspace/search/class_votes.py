"""Answers of a gallery: neighbors, the class of a picture, and the class nearest to another.

    soft kNN  votes exp(-d^2 / (2 variance)) of the nearest pictures; d^2 = 2 - 2 cosine
    kNC       the same votes of the nearest clusters of all classes (Magnet, Eq. 6)

variance is that of the gallery, sum |x - mean|^2 / (pictures - 1), around the mean of each
picture's class or cluster. Clusters are computed from the gallery, so that added classes have some.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kinspace._core.class_index import class_means
from kinspace.clustering import class_kmeans
from kinspace.embeddings import EmbeddingTable
from kinspace.evaluation.classification import knc_scores

__all__ = [
    "UNKNOWN",
    "Added",
    "ClusterClassifier",
    "Neighbor",
    "Verdict",
    "class_variance",
    "nearest_class",
    "soft_knn",
]

UNKNOWN = "unknown"
BELOW_ALL = -2.0  # lower than every cosine
BLOCK = 2**22  # cosines computed at a time


@dataclass(frozen=True)
class Neighbor:
    """A picture of the gallery. same: similarity reaches the threshold `same`; None without one.

    Without classes in the gallery, label is -1 and class_name "".
    """

    row: int
    id: str
    path: str | None
    class_name: str
    label: int
    similarity: float
    same: bool | None


@dataclass(frozen=True)
class Verdict:
    """The class of a picture, or "unknown".

    confidence: the share of the votes for the first class, `best`. similarity: the cosine to the
    nearest picture, which decides whether the class is known.
    """

    class_name: str
    confidence: float
    best: str
    similarity: float
    neighbors: tuple[Neighbor, ...]


@dataclass(frozen=True)
class Added:
    """The pictures added to one class, and the other class nearest to them.

    similarity: the median over the added pictures of their cosine to the nearest picture of that
    other class. confusable: it reaches the threshold `known`, so that at least half of them would
    count as known by that class; None without a threshold.
    """

    class_name: str
    count: int
    new: bool
    nearest_class: str | None
    similarity: float | None
    confusable: bool | None


def class_variance(table: EmbeddingTable) -> float:
    """Mean squared distance of the vectors to the mean of their class.

    >>> class_variance(EmbeddingTable(np.array([[0.0], [2.0], [9.0]]), [0, 0, 1]))
    1.0
    """
    vectors, labels = _labeled(table)
    means, _ = class_means(vectors.double(), labels, int(labels.max()) + 1)
    return _variance(vectors, means[labels])


def _variance(vectors: Tensor, means: Tensor) -> float:
    return float((vectors.double() - means).square().sum()) / max(1, len(vectors) - 1)


def _labeled(table: EmbeddingTable) -> tuple[Tensor, Tensor]:
    if table.labels is None:
        raise ValueError("classify: expected a gallery with classes, got one without")
    return torch.from_numpy(table.vectors), torch.from_numpy(table.labels)


def soft_knn(near: Sequence[Neighbor], variance: float) -> tuple[str, float]:
    """The class with the most votes of these neighbors, and its share; the nearest comes first.

    >>> io = Neighbor(0, "a.jpg", None, "io", 0, 0.9, None)
    >>> luna = Neighbor(1, "b.jpg", None, "luna", 1, 0.1, None)
    >>> soft_knn([io, luna], variance=0.1)[0]
    'io'
    """
    votes: dict[str, float] = {}
    for neighbor in near:
        gap = neighbor.similarity - near[0].similarity  # half the gap of the squared distances
        vote = float(np.exp(gap / variance)) if variance else float(gap == 0)
        votes[neighbor.class_name] = votes.get(neighbor.class_name, 0.0) + vote
    best = max(votes, key=lambda name: votes[name])
    return best, votes[best] / sum(votes.values())


@dataclass(frozen=True, eq=False)
class ClusterClassifier:
    """Classifies by the nearest clusters of a gallery, from a K-means of every class.

    >>> table = EmbeddingTable(np.array([[0.0], [1.0], [5.0], [6.0]]), [0, 0, 1, 1])
    >>> classifier = ClusterClassifier.fit(table, {"clusters": 1, "max_clusters": 8})
    >>> classifier.classify(np.array([1.5]))[0]
    0
    """

    centers: Tensor
    labels: Tensor
    variance: float

    @staticmethod
    def fit(table: EmbeddingTable, options: Mapping[str, Any]) -> ClusterClassifier:
        """options: `clusters` and `max_clusters`, as in the section `index` of a recipe."""
        vectors, labels = _labeled(table)
        found = class_kmeans(
            vectors, labels, options["clusters"], max_clusters=options["max_clusters"]
        )
        variance = _variance(vectors, found.centers[found.clusters])
        return ClusterClassifier(found.centers, found.cluster_labels, variance)

    def classify(self, vector: NDArray[Any]) -> tuple[int, float]:
        """The label of a vector (dim,) and its probability."""
        query = torch.from_numpy(np.asarray(vector)[None])
        scores, classes = knc_scores(query, self.centers, self.labels, self.variance)
        best = int(scores[0].argmax())
        return int(classes[best]), float(scores[0, best])


def nearest_class(
    table: EmbeddingTable, name: str, vectors: NDArray[Any], limit: float | None
) -> Added:
    """The class of a table that is nearest to vectors of length 1 of the class `name`.

    limit: classes as similar as this are confusable; see `Added`.
    """
    assert table.labels is not None
    assert table.class_names is not None
    new = name not in table.class_names
    nearest = torch.full((len(vectors), len(table.class_names)), BELOW_ALL)
    step = max(1, BLOCK // len(table))
    others, owners = torch.from_numpy(table.vectors).float(), torch.from_numpy(table.labels)
    for at in range(0, len(vectors), step):
        cosines = torch.from_numpy(vectors[at : at + step]).float() @ others.T
        nearest[at : at + step].scatter_reduce_(1, owners.expand_as(cosines), cosines, "amax")
    median = nearest.quantile(0.5, dim=0)
    if not new:
        median[table.class_names.index(name)] = BELOW_ALL
    best = int(median.argmax())
    value = float(median[best])
    if value == BELOW_ALL:  # no other class
        return Added(name, len(vectors), new, None, None, None)
    confusable = None if limit is None else value >= limit
    return Added(name, len(vectors), new, table.class_names[best], value, confusable)
