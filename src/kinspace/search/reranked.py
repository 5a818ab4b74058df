"""Re-ranking: the candidates of an approximate index are ordered by their full vectors.

Vectors compressed to a few bytes separate near from far, but do not order the nearest. The index is
asked for more candidates than needed, and their exact cosines decide (Jegou et al., Searching in
one billion vectors, 2011).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinspace._core import checks
from kinspace.evaluation.similarity import Vectors
from kinspace.search.index import Index, SearchResult, Where, empty_result, unit_vectors

__all__ = ["Reranked"]

MIN_CANDIDATES = 40
MAX_CANDIDATES = 2**14  # of a query: Milvus returns no more
BLOCK = 1024  # queries at a time: the vectors of their candidates are copied


class Reranked:
    """An approximate index whose candidates are re-ranked with the full vectors.

    vectors_of: maps ids (n,) to vectors (n, dim) of any length, such as rows of an EmbeddingTable.
    factor: candidates per result. The caller keeps the full vectors: vectors added to the index
    must be available to vectors_of.

    >>> from kinspace.search.exact import ExactIndex
    >>> x = np.array([[1.0, 0.0], [0.6, 0.8]])
    >>> rounded = ExactIndex(2)
    >>> rounded.add(x.round(), [0, 1])
    >>> Reranked(rounded, lambda ids: x[ids]).search(np.array([[0.0, 1.0]]), 1)[1]
    array([[0.8]], dtype=float32)
    """

    def __init__(
        self,
        index: Index,
        vectors_of: Callable[[NDArray[np.int64]], NDArray[Any]],
        *,
        factor: int = 4,
    ) -> None:
        self.index = index
        self.factor = checks.integer("factor", factor, at_least=1)
        self._vectors_of = vectors_of

    @property
    def dim(self) -> int:
        """Length of the vectors."""
        return self.index.dim

    def __len__(self) -> int:
        return len(self.index)

    def add(
        self,
        vectors: Vectors,
        ids: Any,
        labels: Any = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Add vectors to the index; a vector whose id is in the index replaces the old one."""
        self.index.add(vectors, ids, labels, attributes)

    def delete(self, ids: Any) -> int:
        """Remove vectors from the index; returns how many of the ids were in it."""
        return self.index.delete(ids)

    def search(self, queries: Vectors, k: int, *, where: Where | None = None) -> SearchResult:
        """Ids and exact cosines of about the k nearest; of equal ones the lower id first."""
        checks.integer("k", k, at_least=1)
        vectors = unit_vectors(queries, self.dim, name="queries").numpy()
        ids, cosines = empty_result(len(vectors), k)
        candidates = max(k, min(MAX_CANDIDATES, max(MIN_CANDIDATES, self.factor * k)))
        for at in range(0, len(vectors), BLOCK):
            block = vectors[at : at + BLOCK]
            rows = self.index.search(block, candidates, where=where)[0]
            found = self._cosines(block, rows)
            order = np.lexsort((rows, -found), axis=1)[:, :k]
            ids[at : at + BLOCK] = np.take_along_axis(rows, order, 1)
            cosines[at : at + BLOCK] = np.take_along_axis(found, order, 1)
        return ids, cosines

    def _cosines(self, queries: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Exact cosines of each query to its candidates; -inf for missing ones (row -1)."""
        found = np.full(rows.shape, -np.inf, np.float32)
        valid = rows >= 0
        if valid.any():
            near = unit_vectors(self._vectors_of(rows[valid]), self.dim).numpy()
            found[valid] = (near * queries[np.nonzero(valid)[0]]).sum(1)
        return found

    def save(self, file: str | Path) -> None:
        """Write the index, without the full vectors."""
        self.index.save(file)
