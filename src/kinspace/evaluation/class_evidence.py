"""The evidence that a picture is of a class: its similarity to the nearest pictures of the class.

    evidence(class) = mean cosine of the m nearest pictures of the class, m = min(5, their number)

A class with few pictures is compared by those it has, so that it is not outvoted. A picture that is
in the gallery itself is decided by that match alone. `leave_out` searches with pictures of the
gallery as if they were new: of a known class without the picture itself, and of an unknown class
without all pictures of its class.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kinspace._core.vectors import unit
from kinspace.embeddings import EmbeddingTable

__all__ = [
    "CANDIDATES",
    "EXACT",
    "Evidence",
    "LeftOut",
    "class_evidence",
    "leave_out",
    "search_classes",
]

NEAREST = 5  # pictures of a class
CANDIDATES = 64  # nearest pictures in which the classes are looked for
EXACT = 1 - 1e-5  # cosine of a picture to itself, with rounding
MAX_QUERIES = 2000  # of `leave_out`; of more, those of some classes
MAX_OF_CLASS = 20  # queries, where there are too many
BLOCK = 2**24  # cosines computed at a time
QUERIES = 256  # compared at a time


@dataclass(frozen=True, eq=False)
class Evidence:
    """For each query the class with the most evidence, and the evidence of the second class.

    labels, first, second, exact: (queries,). exact: whether a picture of the gallery is the same.
    """

    labels: NDArray[np.int64]
    first: NDArray[np.float64]
    second: NDArray[np.float64]
    exact: NDArray[np.bool_]

    @property
    def features(self) -> NDArray[np.float64]:
        """What a confidence is computed from, (queries, 2): the evidence, and the margin."""
        return np.stack([self.first, self.first - self.second], 1)

    def select(self, rows: NDArray[np.bool_]) -> Evidence:
        """Some of the queries, by a mask."""
        return Evidence(self.labels[rows], self.first[rows], self.second[rows], self.exact[rows])


def class_evidence(
    cosines: NDArray[np.floating],
    labels: NDArray[np.int64],
    sizes: NDArray[np.int64],
    *,
    chosen: int | None = None,
) -> Evidence:
    """The class of each query from its nearest pictures in a gallery.

    cosines, labels: (queries, candidates), nearest first; a missing candidate has the label -1.
    sizes: the pictures of each class in the gallery. A picture of a class that is not among the
    candidates counts with the lowest cosine of those, which is at most too high. chosen: the class
    that something else has found, where it is among the candidates and no picture is the same.

    >>> found = class_evidence(np.array([[0.9, 0.8, 0.1]]), np.array([[1, 0, 0]]), np.array([2, 1]))
    >>> found.labels, found.first, found.second.round(2)
    (array([1]), array([0.9]), array([0.45]))
    """
    parts = [
        _evidence(
            cosines[at : at + QUERIES].astype(np.float64), labels[at : at + QUERIES], sizes, chosen
        )
        for at in range(0, len(cosines), QUERIES)
    ]
    return Evidence(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _evidence(
    cosines: NDArray[np.float64],
    labels: NDArray[np.int64],
    sizes: NDArray[np.int64],
    chosen: int | None,
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    there = labels >= 0
    lowest = np.where(there, cosines, np.inf).min(1, keepdims=True)  # (queries, 1)
    same = (labels[:, :, None] == labels[:, None, :]) & there[:, None, :]
    rank = np.tril(same, -1).sum(2)  # earlier candidates of the same class
    counted = np.where(there & (rank < NEAREST), cosines, 0.0)
    total = (same * counted[:, None, :]).sum(2)  # of the candidate's class
    wanted = np.minimum(NEAREST, np.maximum(sizes[labels], 1))
    missing = np.maximum(wanted - np.minimum(same.sum(2), NEAREST), 0)
    evidence = np.where(there & (rank == 0), (total + missing * lowest) / wanted, -np.inf)
    exact = there & (cosines >= EXACT)
    best = evidence.argmax(1)
    preferred = (labels == chosen, (same & exact[:, None, :]).any(2))  # an exact match comes last
    for wanted_classes in preferred:
        among = np.where(wanted_classes, evidence, -np.inf)
        best = np.where(np.isfinite(among).any(1), among.argmax(1), best)
    queries = np.arange(len(best))
    first = np.where(exact.any(1), cosines[:, 0], evidence[queries, best])
    evidence[queries, best] = -np.inf
    second = evidence.max(1)
    second = np.where(np.isfinite(second), second, lowest[:, 0])
    second = np.minimum(second, first)
    return labels[queries, best], first, second, np.asarray(exact.any(1))


@dataclass(frozen=True, eq=False)
class LeftOut:
    """What searches with pictures of the gallery find when these are left out of it.

    rows: of the queries in the table; labels: their classes. known: without the picture itself;
    alone: pictures that are the only one of their class, which nothing can find. stranger: without
    all pictures of the class.
    """

    rows: NDArray[np.int64]
    labels: NDArray[np.int64]
    known: Evidence
    alone: NDArray[np.bool_]
    stranger: Evidence

    @property
    def right(self) -> NDArray[np.bool_]:
        """Whether the class of the picture is found."""
        found: NDArray[np.bool_] = (self.known.labels == self.labels) & ~self.alone
        return found


def search_classes(table: EmbeddingTable, vectors: NDArray[np.floating]) -> Evidence:
    """Search with vectors (queries, dim) in a table.

    >>> table = EmbeddingTable(np.array([[1, 0], [1, 0.1], [0, 1], [0.1, 1]]), [0, 0, 1, 1])
    >>> search_classes(table, np.array([[0.5, 0.1], [0.2, 0.6]])).labels
    array([0, 1])
    """
    assert table.labels is not None
    gallery = unit(torch.from_numpy(table.vectors)).float()
    queries, labels = unit(torch.from_numpy(vectors)).float(), torch.from_numpy(table.labels)
    step = max(1, BLOCK // len(table))
    parts = [
        _candidates(queries[at : at + step] @ gallery.T, labels)
        for at in range(0, len(queries), step)
    ]
    cosines, found = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return class_evidence(cosines, found, np.bincount(table.labels))


def leave_out(
    table: EmbeddingTable, chosen: NDArray[np.bool_], *, most: int = MAX_QUERIES
) -> LeftOut:
    """Search with the chosen rows, a mask, in all rows of a table of at least two classes.

    most: rows that search; of more, those of some classes.

    >>> table = EmbeddingTable(np.array([[1, 0], [1, 0.1], [0, 1], [0.1, 1]]), [0, 0, 1, 1])
    >>> found = leave_out(table, np.ones(4, bool))
    >>> found.right.all(), found.known.first.min() > found.stranger.first.max()
    (np.True_, np.True_)
    """
    assert table.labels is not None
    rows = _some_classes(np.flatnonzero(chosen), table.labels, most)
    vectors = unit(torch.from_numpy(table.vectors)).float()
    labels = torch.from_numpy(table.labels)
    sizes = np.bincount(table.labels)
    step = max(1, BLOCK // len(table))
    parts: list[tuple[NDArray[np.float32], NDArray[np.int64]]] = []
    others: list[tuple[NDArray[np.float32], NDArray[np.int64]]] = []
    for at in range(0, len(rows), step):
        some = torch.from_numpy(rows[at : at + step])
        cosines = vectors[some] @ vectors.T  # (queries, rows)
        cosines[torch.arange(len(some)), some] = -torch.inf
        parts.append(_candidates(cosines, labels))
        cosines[labels[some, None] == labels] = -torch.inf
        others.append(_candidates(cosines, labels))
    of = table.labels[rows]
    known = [
        class_evidence(cosines, found, sizes - (np.arange(len(sizes)) == label))
        for label, cosines, found in _by_class(of, parts)
    ]
    stranger = [class_evidence(c, found, sizes) for _, c, found in _by_class(of, others)]
    order = np.argsort(np.argsort(of, kind="stable"), kind="stable")
    return LeftOut(rows, of, _joined(known, order), sizes[of] == 1, _joined(stranger, order))


def _some_classes(
    rows: NDArray[np.int64], labels: NDArray[np.int64], queries: int
) -> NDArray[np.int64]:
    """Of too many rows some of each class, and if these are too many those of some classes.

    The largest class comes first, so that there are pairs of one class if there can be.
    """
    if len(rows) <= queries:
        return rows
    of = labels[rows]
    classes, sizes = np.unique(of, return_counts=True)
    most = max(MAX_OF_CLASS, queries // len(classes))
    drawn, largest = np.random.default_rng(0).permutation(len(classes)), int(sizes.argmax())
    order = [largest, *drawn[drawn != largest].tolist()]
    by_class = np.split(rows[np.argsort(of, kind="stable")], np.cumsum(sizes)[:-1])
    kept: list[NDArray[np.int64]] = []
    count = 0
    for each in order:
        own = by_class[each]
        own = own[np.linspace(0, len(own) - 1, min(most, len(own))).astype(np.int64)]
        if kept and count + len(own) > queries:
            break
        kept.append(own)
        count += len(own)
    return np.sort(np.concatenate(kept))


def _candidates(cosines: Tensor, labels: Tensor) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    values, places = cosines.topk(min(CANDIDATES, cosines.shape[1]), dim=1)
    found = torch.where(values.isfinite(), labels[places], -1)
    return values.numpy(), found.numpy()


def _by_class(
    labels: NDArray[np.int64], parts: list[tuple[NDArray[np.float32], NDArray[np.int64]]]
) -> list[tuple[int, NDArray[np.float32], NDArray[np.int64]]]:
    """The candidates of the queries of each class, whose own class is smaller by the query."""
    cosines, found = (np.concatenate(columns) for columns in zip(*parts, strict=True))
    return [
        (label, cosines[labels == label], found[labels == label]) for label in np.unique(labels)
    ]


def _joined(parts: list[Evidence], order: NDArray[np.int64]) -> Evidence:
    names = ("labels", "first", "second", "exact")
    return Evidence(*(np.concatenate([getattr(part, n) for part in parts])[order] for n in names))
