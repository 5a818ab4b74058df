"""Approximate search by faiss, for large sets on one machine. Needs the extra `faiss`.

    hnsw     a graph of near neighbors over the full vectors (Malkov and Yashunin, 2018): finds
             more, in more memory than the vectors themselves
    ivf_pq   cells of a K-means, vectors in dim / 2 bytes or so (Jegou et al., 2011): about a fifth
             of the file; its cosines are approximate too, and `Reranked` makes them exact where
             something else holds the vectors. It learns from the first vectors added.

What was deleted or replaced stays in the file as a row that is never returned; build the index anew
when there is much of it. A filter that few rows fit is answered exactly, by comparing those.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinspace._core import checks
from kinspace.evaluation.metric_inputs import Vectors
from kinspace.search.columns import Columns, checked_rows, numbers, unit_vectors
from kinspace.search.files import read_arrays, write_arrays
from kinspace.search.index import Found, Where, nothing_found

__all__ = ["FaissIndex", "check_enough"]

KINDS = ("hnsw", "ivf_pq")
LINKS, BUILD_EFFORT = 32, 40
LEARNED = 9_984  # 39 for each of the 256 words of a product quantizer: faiss's own lower bound
SAMPLED = 64  # vectors that a cell is learned from, at most; 256, faiss's own, take much longer
FEW = 20_000  # rows that a filter leaves: compared one by one


class FaissIndex:
    """An index of faiss's, `kind` "hnsw" or "ivf_pq".

    effort: what a search looks at, the candidates of hnsw (128) or the cells of ivf_pq (32); more
    finds more and takes longer.

    >>> index = FaissIndex(2)
    >>> index.add(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), [10, 11, 12])
    >>> index.search(np.array([[2.0, 0.1]]), 2)[0]
    array([[10, 12]])
    """

    def __init__(self, dim: int, *, kind: str = "hnsw", effort: int | None = None) -> None:
        faiss = _faiss()
        self._dim = checks.integer("dim", dim, at_least=1)
        self.kind = checks.choice("kind", kind, KINDS)
        self.effort = effort if effort is not None else 128 if kind == "hnsw" else 32
        checks.integer("effort", self.effort, at_least=1)
        self._columns = Columns.of([], 0)
        self._alive = np.zeros(0, bool)
        self._index: Any = None  # ivf_pq is made when there is something to learn from
        if kind == "hnsw":
            self._index = faiss.IndexHNSWFlat(dim, LINKS, faiss.METRIC_INNER_PRODUCT)
            self._index.hnsw.efConstruction = BUILD_EFFORT

    @property
    def dim(self) -> int:
        """Numbers in a vector."""
        return self._dim

    def __len__(self) -> int:
        return int(self._alive.sum())

    def add(
        self,
        vectors: Vectors,
        ids: Any,
        labels: Any = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Put vectors in, or others in the place of those with the same ids."""
        rows, columns = checked_rows(self._dim, vectors, ids, labels, attributes)
        more = rows.numpy()
        whole = self._columns.with_more(columns)
        if self._index is None:
            self._index = _learned(more)
        self._index.add(more)
        self._alive &= ~np.isin(self._columns.ids, columns.ids)
        self._alive = np.append(self._alive, np.ones(len(more), bool))
        self._columns = whole

    def delete(self, ids: Any) -> int:
        """Take vectors out; how many there were."""
        gone = np.isin(self._columns.ids, numbers("ids", ids)) & self._alive
        self._alive &= ~gone
        return int(gone.sum())

    def search(self, queries: Vectors, k: int, *, where: Where | None = None) -> Found:
        """Ids and cosines of about the k nearest of each query."""
        checks.integer("k", k, at_least=1)
        asked = unit_vectors(queries, self._dim, name="queries").numpy()
        alive = self._alive if where is None else self._alive & self._columns.allowed(where)
        if not alive.any():
            return nothing_found(len(asked), k)
        if where is not None and alive.sum() <= FEW:
            rows, cosines = self._compared(asked, np.flatnonzero(alive), k)
        else:
            cosines, rows = self._index.search(asked, k, params=self._parameters(alive, k))
        ids = np.where(rows >= 0, self._columns.ids[rows], -1)
        return ids, np.where(rows >= 0, cosines, -np.inf).astype(np.float32)

    def _parameters(self, alive: NDArray[np.bool_], k: int) -> Any:
        faiss = _faiss()
        selected: dict[str, Any] = {}
        if not alive.all():
            selected["sel"] = faiss.IDSelectorBitmap(np.packbits(alive, bitorder="little"))
        if self.kind == "hnsw":
            return faiss.SearchParametersHNSW(efSearch=max(self.effort, k), **selected)
        return faiss.SearchParametersIVF(nprobe=self.effort, **selected)

    def _compared(self, queries: NDArray[Any], rows: NDArray[Any], k: int) -> Found:
        """The nearest of a few rows, exactly as far as the index still knows their vectors."""
        found, cosines = nothing_found(len(queries), k)
        table = queries @ self._index.reconstruct_batch(rows).T
        order = np.argsort(-table, axis=1, kind="stable")[:, :k]
        found[:, : order.shape[1]] = rows[order]
        cosines[:, : order.shape[1]] = np.take_along_axis(table, order, 1)
        return found, cosines

    def save(self, file: str | Path) -> None:
        """Write the index of faiss, ids, labels and attributes to one .npz file."""
        settings = {"kind": np.array(self.kind), "sizes": np.array([self._dim, self.effort])}
        arrays = {**settings, "alive": self._alive, **self._columns.arrays()}
        if self._index is not None:
            arrays["faiss"] = _faiss().serialize_index(self._index)
        write_arrays(file, arrays)

    @classmethod
    def load(cls, file: str | Path) -> FaissIndex:
        """What `save` wrote."""
        arrays = read_arrays(file, ("kind", "sizes", "alive", "ids", "labels"))
        dim, effort = arrays["sizes"].tolist()
        index = cls(dim, kind=str(arrays["kind"]), effort=effort)
        if "faiss" in arrays:
            index._index = _faiss().deserialize_index(arrays["faiss"])
        ids = arrays["ids"]
        # an id that was replaced is there twice, so the rows are not checked for that
        index._columns = Columns.from_arrays({**arrays, "ids": np.arange(len(ids))})
        index._columns = Columns(ids, index._columns.labels, index._columns.attributes)
        index._alive = arrays["alive"]
        return index


def check_enough(kind: str, count: int) -> None:
    """Whether an index of this kind can begin with so many vectors; a ValueError if not.

    >>> check_enough("hnsw", 1)
    """
    if kind == "ivf_pq" and count < LEARNED:
        raise ValueError(
            f"ivf_pq: expected at least {LEARNED:,} vectors in the first `add`, to learn from, "
            f"got {count:,}; use kind 'hnsw' or the exact search, which is fast for so few"
        )


def _learned(vectors: NDArray[Any]) -> Any:
    """An IVF-PQ index that has learned its cells and words from these vectors."""
    faiss = _faiss()
    count, dim = vectors.shape
    check_enough("ivf_pq", count)
    cells = min(int(4 * math.sqrt(count)), count // 39)
    words = max(size for size in range(1, max(1, dim // 2) + 1) if dim % size == 0)
    # np: without the slow search for codes whose Hamming distance means something
    index = faiss.index_factory(dim, f"IVF{cells},PQ{words}np", faiss.METRIC_INNER_PRODUCT)
    index.cp.max_points_per_centroid = SAMPLED
    index.train(vectors)
    index.make_direct_map()
    return index


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise ValueError(
            "faiss: expected the package, got none installed; pip install 'kinspace[faiss]'"
        ) from None
    return faiss
