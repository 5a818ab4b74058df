"""Answers of a gallery: neighbors, the class of a picture, and the class nearest to another.

The class is that of the most evidence (`kinspace.evaluation.class_evidence`), or for a run with
clusters the one found by

    kNC  votes exp(-d^2 / (2 variance)) of the nearest clusters of all classes (Magnet, Eq. 6)

variance is that of the gallery, sum |x - mean|^2 / (pictures - 1), around the mean of each
picture's cluster. Clusters are computed from the gallery, so that added classes have some. Whether
the class is close enough to be it, the thresholds decide (`kinspace.evaluation.thresholds`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kinspace.clustering import class_kmeans
from kinspace.embeddings import EmbeddingTable
from kinspace.evaluation.class_evidence import CANDIDATES, class_evidence
from kinspace.evaluation.classification import knc_scores
from kinspace.evaluation.thresholds import Thresholds

__all__ = [
    "UNKNOWN",
    "Added",
    "ClusterClassifier",
    "Neighbor",
    "Verdict",
    "decide",
    "nearest_class",
]

UNKNOWN = "unknown"
BELOW_ALL = -2.0  # lower than every cosine
BLOCK = 2**22  # cosines computed at a time
SHOWN = 8  # nearest pictures that are counted for the evidence in words


@dataclass(frozen=True)
class Neighbor:
    """A picture of the gallery.

    same: whether the query is taken to be of its class; None where that is not decided, without
    thresholds. Without classes in the gallery, label is -1 and class_name "".
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

    best: the class of the most evidence, which class_name is too if the picture is known.
    confidence: the calibrated probability that best is right, if strangers are as frequent as
    pictures of known classes. strangers: the share of strangers that look at least as much like a
    class; the picture is known if it is at most that of the dial. Both are None without thresholds,
    and then every picture is known. similarity: the cosine to the nearest picture. exact: whether
    that is the same picture, which decides alone. agreeing: how many of the nearest pictures, and
    of how many, are of the class `best`.
    """

    class_name: str
    best: str
    known: bool
    confidence: float | None
    strangers: float | None
    similarity: float
    exact: bool
    agreeing: tuple[int, int]
    neighbors: tuple[Neighbor, ...]

    def marked(self, neighbor: Neighbor) -> Neighbor:
        """A neighbor with `same` as this verdict decides it."""
        same = self.known and neighbor.class_name == self.best
        return replace(neighbor, same=None if self.strangers is None else same)

    @property
    def evidence(self) -> str:
        """Why, in words."""
        count, among = self.agreeing
        near = f"{count} of the nearest {among} are {self.best}"
        if self.exact:
            return "the gallery has this very picture"
        if self.confidence is None or self.strangers is None:
            return f"{near}; not calibrated"
        if self.known:
            return f"{self.confidence:.0%} sure; {near}"
        many = f"{max(1, round(100 * self.strangers))} of 100"
        return (
            f"most like {self.best}, {self.confidence:.0%} sure; {near}, but "
            f"{many if self.strangers <= 0.5 else 'more than half of'} strangers look as much like "
            "a class"
        )

    @property
    def headline(self) -> str:
        """The answer in a few words, as "unknown, looks most like io, 40% sure"."""
        sure = "" if self.confidence is None else f", {self.confidence:.0%} sure"
        return f"{self.best}{sure}" if self.known else f"unknown, looks most like {self.best}{sure}"

    def __str__(self) -> str:
        """The answer with its evidence."""
        return f"{self.class_name}: {self.evidence}"


@dataclass(frozen=True)
class Added:
    """The pictures added to one class, and the other class nearest to them.

    similarity: the median over the added pictures of their cosine to the nearest picture of that
    other class. confusable: at least half of them would be named after another class; None without
    thresholds.
    """

    class_name: str
    count: int
    new: bool
    nearest_class: str | None
    similarity: float | None
    confusable: bool | None


def decide(
    near: Sequence[Neighbor],
    sizes: NDArray[np.int64],
    thresholds: Thresholds | None,
    strangers: float | None = None,
    *,
    chosen: int | None = None,
) -> Verdict:
    """The class of a picture from its nearest pictures, of which all are the verdict's neighbors.

    sizes: pictures of each class. strangers: the dial, by default that of the thresholds. chosen:
    the class by other means, where it is among those of the neighbors.

    >>> io = Neighbor(0, "a.jpg", None, "io", 0, 0.9, None)
    >>> luna = Neighbor(1, "b.jpg", None, "luna", 1, 0.1, None)
    >>> print(decide([io, luna], np.array([1, 1]), None))
    io: 1 of the nearest 2 are io; not calibrated
    """
    if not near:
        raise ValueError("classify: expected pictures in the gallery, got none")
    limit = None if thresholds is None else thresholds.at(strangers)
    found = class_evidence(
        np.array([[each.similarity for each in near]]),
        np.array([[each.label for each in near]]),
        sizes,
        chosen=chosen,
    )
    best = next(each.class_name for each in near if each.label == found.labels[0])
    exact = bool(found.exact[0])
    known, confidence, share = True, None, None
    if thresholds is not None and limit is not None:
        confidence = float(thresholds.confidence(found)[0])
        share = 0.0 if exact else thresholds.strangers_at(confidence)
        known = exact or confidence >= limit.confidence
        confidence = max(confidence, limit.confidence) if exact else confidence
    shown = near[:SHOWN]
    verdict = Verdict(
        best if known else UNKNOWN,
        best,
        known,
        confidence,
        share,
        near[0].similarity,
        exact,
        (sum(each.class_name == best for each in shown), len(shown)),
        (),
    )
    return replace(verdict, neighbors=tuple(map(verdict.marked, near)))


def _variance(vectors: Tensor, means: Tensor) -> float:
    return float((vectors.double() - means).square().sum()) / max(1, len(vectors) - 1)


def _labeled(table: EmbeddingTable) -> tuple[Tensor, Tensor]:
    if table.labels is None:
        raise ValueError("classify: expected a gallery with classes, got one without")
    return torch.from_numpy(table.vectors), torch.from_numpy(table.labels)


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
    table: EmbeddingTable, name: str, vectors: NDArray[Any], thresholds: Thresholds | None
) -> Added:
    """The class of a table that is nearest to vectors of length 1 of the class `name`."""
    assert table.labels is not None
    assert table.class_names is not None
    new = name not in table.class_names
    others = table if new else table.select(table.labels != table.class_names.index(name))
    if not len(others):
        return Added(name, len(vectors), new, None, None, None)
    assert others.labels is not None
    nearest = torch.full((len(vectors), len(table.class_names)), BELOW_ALL)
    step = max(1, BLOCK // len(others))
    rows, owners = torch.from_numpy(others.vectors).float(), torch.from_numpy(others.labels)
    sizes, named = np.bincount(others.labels), 0
    for at in range(0, len(vectors), step):
        cosines = torch.from_numpy(vectors[at : at + step]).float() @ rows.T
        nearest[at : at + step].scatter_reduce_(1, owners.expand_as(cosines), cosines, "amax")
        near = cosines.topk(min(CANDIDATES, len(others)), dim=1)
        found = class_evidence(near.values.numpy(), owners[near.indices].numpy(), sizes)
        if thresholds is not None:
            accepted = thresholds.confidence(found) >= thresholds.at().confidence
            named += int((accepted | found.exact).sum())
    median = nearest.quantile(0.5, dim=0)
    best = int(median.argmax())
    confusable = None if thresholds is None else 2 * named >= len(vectors)
    return Added(name, len(vectors), new, table.class_names[best], float(median[best]), confusable)
