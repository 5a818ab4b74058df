"""Exact search: matrix products in blocks, on the CPU or a GPU.

Products in float32 find candidates; float64 orders them. If the bound of the float32 error cannot
exclude the remaining rows (many copies of one picture), all rows within it are compared. Cosines
that differ only by rounding count as equal, and the lower id comes first.

Any number of threads may search, add and delete at one time: a search sees what was there when it
began.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
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
GROWTH = 4  # a buffer that is full grows by a fourth


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
        self._lock = threading.Lock()  # held to change the two fields below
        empty = torch.empty(0, dim, device=self._device)
        self._stored = _Stored.of(empty, Columns.checked([], 0))
        self._pending: list[tuple[Tensor, Columns]] = []  # added, not yet stored

    @property
    def dim(self) -> int:
        """Length of the vectors."""
        return self._dim

    def __len__(self) -> int:
        return len(self._merged().columns)

    def add(
        self,
        vectors: Vectors,
        ids: Any,
        labels: Any = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Add vectors; a vector whose id is in the index replaces the old one."""
        more, columns = check_rows(self._dim, vectors, ids, labels, attributes, device=self._device)
        with self._lock:
            before = self._pending[-1][1] if self._pending else self._stored.columns
            before.check_appendable(columns)
            self._pending.append((more, columns))

    def _merged(self) -> _Stored:
        """What is stored, with all that was added; it never changes afterwards."""
        if self._pending:
            with self._lock:
                self._merge()
        return self._stored

    def _merge(self) -> None:
        if not self._pending:
            return
        columns = self._stored.columns
        for _, more in self._pending:
            columns = columns.append(more)
        self._stored = self._stored.extended([more for more, _ in self._pending], columns)
        self._pending = []

    def delete(self, ids: Any) -> int:
        """Remove vectors; returns how many of the ids were in the index."""
        unwanted = check_ids("ids", ids)
        with self._lock:
            self._merge()
            removed = np.isin(self._stored.columns.ids, unwanted)
            if removed.any():
                self._stored = self._stored.select(np.flatnonzero(~removed))
        return int(removed.sum())

    def search(self, queries: Vectors, k: int, *, where: Where | None = None) -> SearchResult:
        """Ids and cosines of the k nearest vectors of each query."""
        checks.integer("k", k, at_least=1)
        stored = self._merged()
        vectors = unit_vectors(queries, self._dim, self._device, name="queries")
        ids, cosines = empty_result(len(vectors), k)
        allowed = None
        if where is not None:
            matches = np.flatnonzero(stored.columns.allowed(where))
            allowed = torch.from_numpy(matches).to(self._device)
        count = min(k, len(stored.columns) if allowed is None else len(allowed))
        if count:
            finder = _Finder(stored.rows, allowed)
            for at in range(0, len(vectors), QUERY_BLOCK):
                exact, rows = finder.nearest(vectors[at : at + QUERY_BLOCK], count)
                ids[at : at + QUERY_BLOCK, :count] = stored.columns.ids[rows.cpu().numpy()]
                cosines[at : at + QUERY_BLOCK, :count] = exact.cpu().numpy()
        return ids, cosines

    def save(self, file: str | Path) -> None:
        """Write vectors, ids, labels and attributes to a .npz file."""
        stored = self._merged()
        write_arrays(file, {"vectors": stored.rows.given.cpu().numpy(), **stored.columns.arrays()})

    @classmethod
    def load(cls, file: str | Path, *, device: str | torch.device = "cpu") -> ExactIndex:
        """The index in a file by `save`."""
        arrays = read_arrays(file, ("vectors", "ids", "labels"))
        index = cls(arrays["vectors"].shape[1], device=device)
        columns = Columns.from_arrays(arrays)
        if len(columns):
            index.add(arrays["vectors"], columns.ids, columns.labels, columns.attributes)
        return index


@dataclass(frozen=True, eq=False)
class _Stored:
    """Vectors sorted by id, with their columns. Searches use one while the next is made.

    buffer: holds the vectors and, behind them, room for more, which no search sees.
    """

    rows: Rows
    columns: Columns
    buffer: Tensor

    @staticmethod
    def of(
        vectors: Tensor, columns: Columns, buffer: Tensor | None = None, lengths: Any = None
    ) -> _Stored:
        if lengths is None:
            lengths = _lengths(vectors)
        inverse = lengths.reciprocal().masked_fill_(lengths == 0, 0)
        rows = Rows(vectors, inverse, vectors, lengths, None)
        return _Stored(rows, columns, vectors if buffer is None else buffer)

    def extended(self, vectors: list[Tensor], columns: Columns) -> _Stored:
        """With more vectors; columns: of all. The last vector of an id counts."""
        count, total = len(self.columns), len(columns)
        new = columns.ids[count:]
        if (np.diff(new) <= 0).any() or (count and new[0] <= columns.ids[count - 1]):
            merged = torch.cat([self.rows.given, *vectors])
            backwards = columns.ids[::-1]
            last = total - 1 - np.unique(backwards, return_index=True)[1]
            place = torch.from_numpy(last).to(merged.device)
            return _Stored.of(merged[place], columns.select(last))
        if not count and len(vectors) == 1:  # a tensor of ours (`unit_vectors`): not copied
            return _Stored.of(vectors[0], columns)
        buffer = self.buffer
        if len(buffer) < total:
            spare = total // GROWTH if count else 0  # of what is added once, none
            buffer = buffer.new_empty(total + spare, buffer.shape[1])
            buffer[:count] = self.rows.given
        torch.cat(vectors, out=buffer[count:total])
        lengths = torch.cat([self.rows.length, _lengths(buffer[count:total])])
        return _Stored.of(buffer[:total], columns, buffer, lengths)

    def select(self, rows: NDArray[np.int64]) -> _Stored:
        """Some of the vectors, in the order of their ids."""
        place = torch.from_numpy(rows).to(self.rows.given.device)
        return _Stored.of(self.rows.given[place], self.columns.select(rows))


def _lengths(vectors: Tensor) -> Tensor:
    """In float64, block by block: a copy of all in float64 is twice the vectors."""
    lengths = torch.empty(len(vectors), dtype=torch.float64, device=vectors.device)
    for at in range(0, len(vectors), BLOCK["cpu"]):
        part = vectors[at : at + BLOCK["cpu"]]
        lengths[at : at + len(part)] = torch.linalg.vector_norm(part, dim=1, dtype=torch.float64)
    return lengths


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
