"""The interface of all indexes: vectors with ids are added, the nearest are found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kinspace._core import checks
from kinspace.evaluation.similarity import Vectors

__all__ = ["Index", "SearchResult", "Where", "empty_result", "recall_against_exact"]

Value = bool | int | float | str
Where = Mapping[str, Value | Sequence[Value]]
SearchResult = tuple[NDArray[np.int64], NDArray[np.float32]]


class Index(Protocol):
    """Vectors with ids, searched by cosine similarity.

    An id is a non-negative integer, such as a row of an EmbeddingTable. A filter (`where`) lists
    the allowed values: {"label": [3, 5], "striped": True} selects what matches every entry.
    """

    @property
    def dim(self) -> int:
        """Length of the vectors."""

    def add(
        self,
        vectors: Vectors,
        ids: Any,
        labels: Any = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Put vectors in, or others in the place of those with the same ids.

        labels: one integer per vector. attributes: by name, one value per vector.
        """

    def search(self, queries: Vectors, k: int, *, where: Where | None = None) -> SearchResult:
        """Ids and cosines of the k nearest of each query, both (queries, k), nearest first.

        If there are fewer, or an approximate search finds fewer, the rest is -1 and -inf.
        """

    def delete(self, ids: Any) -> int:
        """Remove vectors; returns how many of the ids were in the index."""

    def save(self, file: str | Path) -> None:
        """Write a file for `load` of the same class."""

    def __len__(self) -> int:
        """The number of vectors."""


def empty_result(queries: int, k: int) -> SearchResult:
    """Ids and cosines of a search that finds nothing, to be filled in.

    >>> empty_result(1, 2)
    (array([[-1, -1]]), array([[-inf, -inf]], dtype=float32))
    """
    return np.full((queries, k), -1, np.int64), np.full((queries, k), -np.inf, np.float32)


def recall_against_exact(index: Index, exact: Index, queries: Vectors, k: int = 10) -> float:
    """The share of the true k nearest that an approximate index finds, over all queries.

    >>> from kinspace.search.exact import ExactIndex
    >>> whole, part = ExactIndex(2), ExactIndex(2)
    >>> whole.add(np.eye(2), [0, 1])
    >>> part.add(np.eye(2)[:1], [0])
    >>> recall_against_exact(part, whole, np.eye(2), 2)
    0.5
    """
    checks.integer("k", k, at_least=1)
    truth, found = exact.search(queries, k)[0], index.search(queries, k)[0]
    if not (truth >= 0).any():
        raise ValueError("exact: expected an index with vectors in it, got none")
    hits = (truth[:, :, None] == found[:, None, :]).any(2) & (truth >= 0)
    return float(hits.sum() / (truth >= 0).sum())
