"""Approximate search by faiss, for large sets on one machine. Needs the extra `faiss`.

    hnsw     a graph of near neighbors over the full vectors (Malkov and Yashunin, 2018): higher
             recall, more memory than the vectors
    ivf_pq   cells of a K-means and vectors in about dim / 2 bytes (Jegou et al., 2011): about a
             fifth of the file. Its cosines are approximate; `Reranked` makes them exact. It is
             trained on the vectors of the first `add`.

Deleted and replaced vectors stay in the file as rows that are never returned; build the index again
when there are many. A filter that few rows match is answered by exact comparison.

Any number of threads may search, add and delete at one time. faiss itself cannot search while it
adds: searches wait for an `add`, and an `add` for the searches before it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinspace._core import checks
from kinspace._core.locks import SharedLock
from kinspace.evaluation.similarity import Vectors
from kinspace.search.index import (
    Columns,
    SearchResult,
    Where,
    check_ids,
    check_rows,
    empty_result,
    read_arrays,
    unit_vectors,
    write_arrays,
)

__all__ = ["FaissIndex", "check_training_size"]

KINDS = ("hnsw", "ivf_pq")
LINKS, BUILD_EFFORT = 32, 40  # of hnsw
MIN_TRAINING = 9_984  # 39 for each of the 256 centroids of a product quantizer: faiss's minimum
SAMPLES_PER_CELL = 64  # training vectors per cell; faiss's default of 256 takes much longer
EXACT_BELOW = 20_000  # rows that match a filter: no more than this are compared exactly


class FaissIndex:
    """A faiss index of `kind` "hnsw" or "ivf_pq".

    effort: the candidates (hnsw, default 128) or cells (ivf_pq, default 32) that a search visits;
    higher values find more and take longer.

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
        self._lock = SharedLock()  # of the three fields below
        self._columns = Columns.checked([], 0)
        self._alive = np.zeros(0, bool)
        self._index: Any = None  # ivf_pq is created by the first `add`, which it is trained on
        if kind == "hnsw":
            self._index = faiss.IndexHNSWFlat(dim, LINKS, faiss.METRIC_INNER_PRODUCT)
            self._index.hnsw.efConstruction = BUILD_EFFORT

    @property
    def dim(self) -> int:
        """Length of the vectors."""
        return self._dim

    def __len__(self) -> int:
        with self._lock.reading():
            return int(self._alive.sum())

    def add(
        self,
        vectors: Vectors,
        ids: Any,
        labels: Any = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Add vectors; a vector whose id is in the index replaces the old one."""
        rows, columns = check_rows(self._dim, vectors, ids, labels, attributes)
        more = rows.numpy()
        with self._lock.writing():
            appended = self._columns.append(columns)
            if self._index is None:
                self._index = _trained(more)
            self._index.add(more)
            replaced = np.isin(self._columns.ids, columns.ids)
            self._alive = np.append(self._alive & ~replaced, np.ones(len(more), bool))
            self._columns = appended

    def delete(self, ids: Any) -> int:
        """Remove vectors; returns how many of the ids were in the index."""
        unwanted = check_ids("ids", ids)
        with self._lock.writing():
            removed = np.isin(self._columns.ids, unwanted) & self._alive
            self._alive = self._alive & ~removed
        return int(removed.sum())

    def search(self, queries: Vectors, k: int, *, where: Where | None = None) -> SearchResult:
        """Ids and cosines of about the k nearest of each query."""
        checks.integer("k", k, at_least=1)
        vectors = unit_vectors(queries, self._dim, name="queries").numpy()
        with self._lock.reading():
            return self._found(vectors, k, where)

    def _found(self, vectors: NDArray[Any], k: int, where: Where | None) -> SearchResult:
        alive = self._alive if where is None else self._alive & self._columns.allowed(where)
        if not alive.any():
            return empty_result(len(vectors), k)
        if where is not None and alive.sum() <= EXACT_BELOW:
            rows, cosines = self._compare(vectors, np.flatnonzero(alive), k)
        else:
            cosines, rows = self._index.search(vectors, k, params=self._parameters(alive, k))
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

    def _compare(self, queries: NDArray[Any], rows: NDArray[Any], k: int) -> SearchResult:
        """The nearest of a few rows, with the vectors as the index stores them."""
        found, cosines = empty_result(len(queries), k)
        table = queries @ self._index.reconstruct_batch(rows).T
        order = np.argsort(-table, axis=1, kind="stable")[:, :k]
        found[:, : order.shape[1]] = rows[order]
        cosines[:, : order.shape[1]] = np.take_along_axis(table, order, 1)
        return found, cosines

    def save(self, file: str | Path) -> None:
        """Write the faiss index, ids, labels and attributes to one .npz file."""
        settings = {"kind": np.array(self.kind), "sizes": np.array([self._dim, self.effort])}
        with self._lock.reading():
            arrays = {**settings, "alive": self._alive, **self._columns.arrays()}
            if self._index is not None:
                arrays["faiss"] = _faiss().serialize_index(self._index)
        write_arrays(file, arrays)

    @classmethod
    def load(cls, file: str | Path) -> FaissIndex:
        """The index in a file by `save`."""
        arrays = read_arrays(file, ("kind", "sizes", "alive", "ids", "labels"))
        dim, effort = arrays["sizes"].tolist()
        index = cls(dim, kind=str(arrays["kind"]), effort=effort)
        if "faiss" in arrays:
            index._index = _faiss().deserialize_index(arrays["faiss"])
        ids = arrays["ids"]
        # a replaced id appears twice, so the ids are not checked for duplicates
        index._columns = Columns.from_arrays({**arrays, "ids": np.arange(len(ids))})
        index._columns = Columns(ids, index._columns.labels, index._columns.attributes)
        index._alive = arrays["alive"]
        return index


def check_training_size(kind: str, count: int) -> None:
    """Raise a ValueError if `count` vectors are too few to train an index of this kind.

    >>> check_training_size("hnsw", 1)
    """
    if kind == "ivf_pq" and count < MIN_TRAINING:
        raise ValueError(
            f"ivf_pq: expected at least {MIN_TRAINING:,} vectors in the first `add`, to train on, "
            f"got {count:,}; use kind 'hnsw' or the exact search, which is fast for so few"
        )


def _trained(vectors: NDArray[Any]) -> Any:
    """An empty IVF-PQ index, trained on these vectors."""
    faiss = _faiss()
    count, dim = vectors.shape
    check_training_size("ivf_pq", count)
    cells = min(int(4 * math.sqrt(count)), count // 39)
    pieces = max(size for size in range(1, max(1, dim // 2) + 1) if dim % size == 0)
    # np: without the slow polysemous training, which only Hamming filters need
    index = faiss.index_factory(dim, f"IVF{cells},PQ{pieces}np", faiss.METRIC_INNER_PRODUCT)
    index.cp.max_points_per_centroid = SAMPLES_PER_CELL
    index.train(vectors)
    index.make_direct_map()
    return index


def _faiss() -> Any:
    try:
        import faiss
    except ImportError:
        raise ValueError(
            "faiss: the package is not installed; install it with: pip install 'kinspace[faiss]'"
        ) from None
    return faiss
