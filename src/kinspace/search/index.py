"""What every search has in common: vectors with a number each go in, the nearest come out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kinspace._core import checks
from kinspace.evaluation.metric_inputs import Vectors

__all__ = ["Found", "Index", "Where", "nothing_found", "recall_against_exact"]

Value = bool | int | float | str
Where = Mapping[str, Value | Sequence[Value]]
Found = tuple[NDArray[np.int64], NDArray[np.float32]]


class Index(Protocol):
    """Vectors by number, searched by cosine.

    An id is a whole number from 0 on, such as the row of an EmbeddingTable. A filter (`where`) says
    which values are wanted: {"label": [3, 5], "striped": True} takes what fits every entry.
    """

    @property
    def dim(self) -> int:
        """Numbers in a vector."""

    def add(
        self,
        vectors: Vectors,
        ids: Any,
        labels: Any = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Put vectors in, or others in the place of those with the same ids.

        labels: a whole number each. attributes: by name, a column of one value each.
        """

    def search(self, queries: Vectors, k: int, *, where: Where | None = None) -> Found:
        """Ids and cosines of the k nearest of each query, both (queries, k), nearest first.

        Where there are fewer, or an approximate search has found fewer, the rest is -1 and -inf.
        """

    def delete(self, ids: Any) -> int:
        """Take vectors out; how many there were."""

    def save(self, file: str | Path) -> None:
        """Write what `load` of the same class takes."""

    def __len__(self) -> int:
        """The number of vectors."""


def nothing_found(queries: int, k: int) -> Found:
    """Ids and cosines to be filled with what a search finds.

    >>> nothing_found(1, 2)
    (array([[-1, -1]]), array([[-inf, -inf]], dtype=float32))
    """
    return np.full((queries, k), -1, np.int64), np.full((queries, k), -np.inf, np.float32)


def recall_against_exact(index: Index, exact: Index, queries: Vectors, k: int = 10) -> float:
    """The share of the true k nearest that an approximate search finds, over all queries.

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
