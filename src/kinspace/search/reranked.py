"""An approximate search whose answers are put in order by the full vectors.

Codes of a few bytes tell near from far, but not the nearest from the next to it: what such a search
misses it mostly has a little further down. So it is asked for more than is wanted, and the cosines
of these few are worked out anew, exactly (Jegou et al., Searching in one billion vectors, 2011).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinspace._core import checks
from kinspace.evaluation.metric_inputs import Vectors
from kinspace.search.columns import unit_vectors
from kinspace.search.index import Found, Index, Where, nothing_found

__all__ = ["Reranked"]

LEAST = 40  # candidates, however few are asked for
BLOCK = 1024  # queries at a time: their candidates' vectors are copied


class Reranked:
    """An index, and the full vectors of its ids, which something else holds.

    vectors_of: from ids (n,) to vectors (n, dim) of any length, such as rows of an EmbeddingTable.
    factor: candidates for each answer that is asked for. What is added to or deleted from the index
    has to be added to or deleted from where the vectors are, too.

    >>> from kinspace.search.exact import ExactIndex
    >>> x = np.array([[1.0, 0.0], [0.6, 0.8]])
    >>> rough = ExactIndex(2)
    >>> rough.add(x.round(), [0, 1])
    >>> Reranked(rough, lambda ids: x[ids]).search(np.array([[0.0, 1.0]]), 1)[1]
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
        """Numbers in a vector."""
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
        """Put vectors into the index, or others in the place of those with the same ids."""
        self.index.add(vectors, ids, labels, attributes)

    def delete(self, ids: Any) -> int:
        """Take vectors out of the index; how many there were."""
        return self.index.delete(ids)

    def search(self, queries: Vectors, k: int, *, where: Where | None = None) -> Found:
        """Ids and exact cosines of about the k nearest; of equals the lower id first."""
        checks.integer("k", k, at_least=1)
        asked = unit_vectors(queries, self.dim, name="queries").numpy()
        ids, cosines = nothing_found(len(asked), k)
        for at in range(0, len(asked), BLOCK):
            some = asked[at : at + BLOCK]
            rows = self.index.search(some, max(LEAST, self.factor * k), where=where)[0]
            found = self._cosines(some, rows)
            order = np.lexsort((rows, -found), axis=1)[:, :k]
            ids[at : at + BLOCK] = np.take_along_axis(rows, order, 1)
            cosines[at : at + BLOCK] = np.take_along_axis(found, order, 1)
        return ids, cosines

    def _cosines(self, queries: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Of each query with its own rows; -inf where there is none."""
        found = np.full(rows.shape, -np.inf, np.float32)
        there = rows >= 0
        if there.any():
            near = unit_vectors(self._vectors_of(rows[there]), self.dim).numpy()
            found[there] = (near * queries[np.nonzero(there)[0]]).sum(1)
        return found

    def save(self, file: str | Path) -> None:
        """Write the index; the vectors are where they were."""
        self.index.save(file)
