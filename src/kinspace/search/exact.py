"""Exact search: matrix products in blocks, on the CPU or a GPU.

Products in float32 find candidates; float64 orders them. If the bound of the float32 error cannot
exclude the remaining rows (many copies of one picture), all rows within it are compared. Cosines
that differ only by rounding count as equal, and the lower id comes first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinspace._core import checks
from kinspace.evaluation.similarity import Rows, Space, Vectors
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

__all__ = ["ExactIndex"]

QUERY_BLOCK = 512  # queries at a time
BLOCK = {"cpu": 2**14, "cuda": 2**19}  # vectors multiplied at a time
EXTRA = 8  # candidates beyond k


class ExactIndex:
    """All vectors in memory, as float32 of length 1.

    >>> index = ExactIndex(2)
    >>> index.add(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), [10, 11, 12], labels=[0, 1, 1])
    >>> ids, cosines = index.search(np.array([[2.0, 0.1]]), 2)
    >>> ids, cosines.round(3)
    (array([[10, 12]]), array([[0.999, 0.742]], dtype=float32))
    >>> index.search(np.array([[2.0, 0.1]]), 2, where={"label": 1})[0]
    array([[12, 11]])
    """

    def __init__(self, dim: int, *, device: str | torch.device = "cpu") -> None:
        self._dim = checks.integer("dim", dim, at_least=1)
        self._device = torch.device(device)
        self._vectors = torch.empty(0, dim, device=self._device)
        self._columns = Columns.checked([], 0)
        self._pending: list[Tensor] = []  # added, not yet part of _vectors

    @property
    def dim(self) -> int:
        """Length of the vectors."""
        return self._dim

    def __len__(self) -> int:
        self._merge_pending()
        return len(self._columns)

    def add(
        self,
        vectors: Vectors,
        ids: Any,
        labels: Any = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Add vectors; a vector whose id is in the index replaces the old one."""
        more, columns = check_rows(self._dim, vectors, ids, labels, attributes, device=self._device)
        self._columns = self._columns.append(columns)
        self._pending.append(more)

    def _merge_pending(self) -> None:
        """Merge added vectors into one tensor, sorted by id; the last vector of an id counts."""
        if not self._pending:
            return
        merged = torch.cat([self._vectors, *self._pending])
        self._pending = []
        backwards = self._columns.ids[::-1]
        last = len(backwards) - 1 - np.unique(backwards, return_index=True)[1]
        self._keep(merged, last)

    def _keep(self, vectors: Tensor, rows: Any) -> None:
        if not np.array_equal(rows, np.arange(len(vectors))):
            vectors = vectors[torch.from_numpy(rows).to(self._device)]
            self._columns = self._columns.select(rows)
        self._vectors = vectors
        lengths = torch.linalg.vector_norm(vectors, dim=1, dtype=torch.float64)
        inverse = lengths.reciprocal().masked_fill_(lengths == 0, 0)
        self._rows = Rows(vectors, inverse, vectors, lengths, None)

    def delete(self, ids: Any) -> int:
        """Remove vectors; returns how many of the ids were in the index."""
        self._merge_pending()
        removed = np.isin(self._columns.ids, check_ids("ids", ids))
        if removed.any():
            self._keep(self._vectors, np.flatnonzero(~removed))
        return int(removed.sum())

    def search(self, queries: Vectors, k: int, *, where: Where | None = None) -> SearchResult:
        """Ids and cosines of the k nearest vectors of each query."""
        checks.integer("k", k, at_least=1)
        self._merge_pending()
        vectors = unit_vectors(queries, self._dim, self._device, name="queries")
        ids, cosines = empty_result(len(vectors), k)
        allowed = None
        if where is not None:
            matches = np.flatnonzero(self._columns.allowed(where))
            allowed = torch.from_numpy(matches).to(self._device)
        count = min(k, len(self._columns) if allowed is None else len(allowed))
        if count:
            finder = _Finder(self._rows, allowed)
            for at in range(0, len(vectors), QUERY_BLOCK):
                exact, rows = finder.nearest(vectors[at : at + QUERY_BLOCK], count)
                ids[at : at + QUERY_BLOCK, :count] = self._columns.ids[rows.cpu().numpy()]
                cosines[at : at + QUERY_BLOCK, :count] = exact.cpu().numpy()
        return ids, cosines

    def save(self, file: str | Path) -> None:
        """Write vectors, ids, labels and attributes to a .npz file."""
        self._merge_pending()
        write_arrays(file, {"vectors": self._vectors.cpu().numpy(), **self._columns.arrays()})

    @classmethod
    def load(cls, file: str | Path, *, device: str | torch.device = "cpu") -> ExactIndex:
        """The index in a file by `save`."""
        arrays = read_arrays(file, ("vectors", "ids", "labels"))
        index = cls(arrays["vectors"].shape[1], device=device)
        columns = Columns.from_arrays(arrays)
        if len(columns):
            index.add(arrays["vectors"], columns.ids, columns.labels, columns.attributes)
        return index


class _Finder:
    """Finds the nearest of all rows, or of the allowed ones."""

    def __init__(self, rows: Rows, allowed: Tensor | None) -> None:
        self.rows = rows
        self.allowed = allowed
        self.total = len(rows) if allowed is None else len(allowed)
        self.space = Space("cosine", rows.given[:1])
        self.step = BLOCK.get(rows.given.device.type, BLOCK["cpu"])

    def nearest(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Exact cosines and rows, (queries, k)."""
        rough, rows = self._candidates(queries, min(k + EXTRA, self.total))
        each = torch.arange(len(queries), device=queries.device)[:, None].expand_as(rows)
        exact = self._exact(queries, each.flatten(), rows.flatten()).view_as(rough)
        exact, rows = self._ordered(exact, rows, k)
        if rough.shape[1] < self.total:
            cut = exact[:, -1] - self.space.error
            for crowded in (rough[:, -1] >= cut).nonzero()[:, 0].tolist():
                one, limit = queries[crowded : crowded + 1], cut[crowded]
                near = torch.cat([part[table[0] >= limit] for table, part in self._tables(one)])
                same = self._exact(one, torch.zeros_like(near), near)
                found = self._ordered(same[None], near[None], k)
                exact[crowded], rows[crowded] = found[0][0], found[1][0]
        return exact, rows

    def _tables(self, queries: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Float32 cosines of all queries to a block of rows, and these rows."""
        vectors = self.rows.fast
        for at in range(0, self.total, self.step):
            end = min(at + self.step, self.total)
            if self.allowed is None:
                part, block = torch.arange(at, end, device=queries.device), vectors[at:end]
            else:
                part = self.allowed[at:end]
                block = vectors[part]
            with torch.autocast(queries.device.type, enabled=False):
                yield queries @ block.T, part

    def _candidates(self, queries: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """The `count` highest float32 cosines and their rows."""
        best = queries.new_empty(len(queries), 0)
        rows = torch.empty(len(queries), 0, dtype=torch.int64, device=queries.device)
        for table, part in self._tables(queries):
            values, found = table.topk(min(count, len(part)), dim=1)
            best, rows = torch.cat([best, values], 1), torch.cat([rows, part[found]], 1)
            if best.shape[1] > count:
                best, kept = best.topk(count, dim=1)
                rows = rows.gather(1, kept)
        return best, rows

    def _exact(self, queries: Tensor, each: Tensor, rows: Tensor) -> Tensor:
        return self.space.pairs(self.space.rows(queries), each, self.rows, rows)

    def _ordered(self, exact: Tensor, rows: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The first k by cosine; cosines equal up to rounding are ordered by row, that is by id."""
        exact, order = exact.sort(dim=1, descending=True)
        rows = rows.gather(1, order)
        apart = exact[:, :-1] - exact[:, 1:] > self.space.slack(exact[:, :-1])
        groups = torch.nn.functional.pad(apart.cumsum(1), (1, 0))
        order = (groups * 2**40 + rows).argsort(dim=1)[:, :k]
        return exact.gather(1, order), rows.gather(1, order)
