"""Exact search over compact vectors: a byte a number, or a bit.

    int8     c = round(127 x / m), m the largest |x| of each dimension: a quarter of the memory.
             Scores are products of the query with m c / 127
    binary   the bit of x > mean, dimension by dimension: a 32nd of the memory. Scores fall with the
             number of bits that differ, cos(pi h / dim) for h of them (Charikar, Similarity
             estimation techniques from rounding algorithms, 2002)

m and the means are those of the first `add`; later numbers are clipped to the range. The scores
order the candidates, whose exact cosines `Reranked` computes with the full vectors.

Any number of threads may search, add and delete at one time: a search sees what was there when it
began.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kinspace._core import checks
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

__all__ = ["PRECISIONS", "CompactIndex", "bit_codes", "bit_cosines"]

PRECISIONS = ("float32", "int8", "binary")
HIGHEST = 127
ROWS, QUERIES = 2**14, 512  # compared at a time
BY_BITS = 64  # queries compared at a time by their bits
BITS = np.array([bin(byte).count("1") for byte in range(256)], np.uint8)  # set in each byte


@dataclass(frozen=True, eq=False)
class _Codes:
    """Codes (rows, bytes), with their columns."""

    codes: NDArray[Any]
    columns: Columns


class CompactIndex:
    """All vectors in memory as "int8" or "binary" codes; cosines are approximate.

    >>> x = np.eye(4) + 0.1
    >>> index = CompactIndex(4, "int8")
    >>> index.add(x, [10, 11, 12, 13])
    >>> index.search(x[2:3], 1)[0]
    array([[12]])
    """

    def __init__(self, dim: int, precision: str = "int8") -> None:
        self._dim = checks.integer("dim", dim, at_least=1)
        self.precision = checks.choice("precision", precision, PRECISIONS[1:])
        self._lock = threading.Lock()  # held to change the fields below
        self._scale: NDArray[np.float32] | None = None  # m, or the means
        width = dim if precision == "int8" else -(-dim // 8)
        kind = np.int8 if precision == "int8" else np.uint8
        self._stored = _Codes(np.empty((0, width), kind), Columns.checked([], 0))

    @property
    def dim(self) -> int:
        """Length of the vectors."""
        return self._dim

    def __len__(self) -> int:
        return len(self._stored.columns)

    @property
    def nbytes(self) -> int:
        """Bytes of the codes."""
        return int(self._stored.codes.nbytes)

    def add(
        self,
        vectors: Vectors,
        ids: Any,
        labels: Any = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Add vectors; a vector whose id is in the index replaces the old one."""
        rows, columns = check_rows(self._dim, vectors, ids, labels, attributes)
        values = rows.numpy()
        with self._lock:
            if self._scale is None:
                scale = np.abs(values).max(0) if self.precision == "int8" else values.mean(0)
                self._scale = np.maximum(scale, 1e-12) if self.precision == "int8" else scale
            old = self._stored
            kept = ~np.isin(old.columns.ids, columns.ids)
            codes, known = (
                (old.codes, old.columns)
                if kept.all()
                else (old.codes[kept], old.columns.select(kept))
            )
            joined = known.append(columns)
            self._stored = _Codes(np.concatenate([codes, self._coded(values)]), joined)

    def _coded(self, values: NDArray[np.float32]) -> NDArray[Any]:
        assert self._scale is not None
        codes = np.empty((len(values), self._stored.codes.shape[1]), self._stored.codes.dtype)
        for at in range(0, len(values), ROWS):  # without a copy of all of them
            part = values[at : at + ROWS]
            if self.precision == "binary":
                codes[at : at + ROWS] = bit_codes(part, self._scale)
            else:
                scaled = np.round(part * (HIGHEST / self._scale))
                codes[at : at + ROWS] = scaled.clip(-HIGHEST, HIGHEST)
        return codes

    def delete(self, ids: Any) -> int:
        """Remove vectors; returns how many of the ids were in the index."""
        unwanted = check_ids("ids", ids)
        with self._lock:
            old = self._stored
            removed = np.isin(old.columns.ids, unwanted)
            if removed.any():
                self._stored = _Codes(old.codes[~removed], old.columns.select(~removed))
        return int(removed.sum())

    def search(self, queries: Vectors, k: int, *, where: Where | None = None) -> SearchResult:
        """Ids and approximate cosines of the k rows of the highest scores."""
        checks.integer("k", k, at_least=1)
        stored = self._stored
        values = unit_vectors(queries, self._dim, name="queries").numpy()
        ids, cosines = empty_result(len(values), k)
        allowed = None
        if where is not None:
            allowed = np.flatnonzero(stored.columns.allowed(where))
        codes = stored.codes if allowed is None else stored.codes[allowed]
        count = min(k, len(codes))
        if count:
            for at in range(0, len(values), QUERIES):
                best, rows = self._best(values[at : at + QUERIES], codes, count)
                places = rows if allowed is None else allowed[rows]
                ids[at : at + QUERIES, :count] = stored.columns.ids[places]
                cosines[at : at + QUERIES, :count] = self._cosines(best)
        return ids, cosines

    def _best(
        self, queries: NDArray[np.float32], codes: NDArray[Any], count: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """The highest scores of each query and their rows."""
        best = torch.empty(len(queries), 0)
        rows = torch.empty(len(queries), 0, dtype=torch.int64)
        for at in range(0, len(codes), ROWS):
            part = codes[at : at + ROWS]
            scores = torch.from_numpy(self._scores(queries, part))
            values, found = scores.topk(min(count, len(part)), dim=1)
            best, rows = torch.cat([best, values], 1), torch.cat([rows, found + at], 1)
            if best.shape[1] > count:
                best, kept = best.topk(count, dim=1)
                rows = rows.gather(1, kept)
        best, order = best.sort(dim=1, descending=True, stable=True)
        return best.numpy(), rows.gather(1, order).numpy()

    def _scores(self, queries: NDArray[np.float32], codes: NDArray[Any]) -> NDArray[np.float32]:
        """(queries, rows): approximate cosines, or less the bits that differ."""
        assert self._scale is not None
        if self.precision == "int8":
            scaled = torch.from_numpy(queries * (self._scale / HIGHEST))
            products: NDArray[np.float32] = (scaled @ torch.from_numpy(codes).float().T).numpy()
            return products
        asked = bit_codes(queries, self._scale)
        found = np.empty((len(queries), len(codes)), np.float32)
        for at in range(0, len(queries), BY_BITS):
            found[at : at + BY_BITS] = _different_bits(asked[at : at + BY_BITS], codes)
        return np.negative(found, out=found)

    def _cosines(self, scores: NDArray[np.float32]) -> NDArray[np.float32]:
        if self.precision == "int8":
            return scores
        return bit_cosines(scores, self._dim)

    def save(self, file: str | Path) -> None:
        """Write codes, ids, labels and attributes to a .npz file."""
        stored, scale = self._stored, self._scale
        arrays: dict[str, NDArray[Any]] = {
            "precision": np.array(self.precision),
            "dim": np.array(self._dim),
            "codes": stored.codes,
            **stored.columns.arrays(),
        }
        write_arrays(file, arrays if scale is None else {**arrays, "scale": scale})

    @classmethod
    def load(cls, file: str | Path) -> CompactIndex:
        """The index in a file by `save`."""
        arrays = read_arrays(file, ("precision", "dim", "codes", "ids", "labels"))
        index = cls(int(arrays["dim"]), str(arrays["precision"]))
        index._stored = _Codes(arrays["codes"], Columns.from_arrays(arrays))
        index._scale = arrays.get("scale")
        return index


def bit_codes(rows: NDArray[np.float32], means: NDArray[np.float32]) -> NDArray[np.uint8]:
    """The bits of x > mean, eight in a byte.

    >>> bit_codes(np.array([[1.0, 0.0, 1.0]]), np.zeros(3))
    array([[160]], dtype=uint8)
    """
    return np.packbits(rows > means, axis=1)


def bit_cosines(different: NDArray[np.float32], dim: int) -> NDArray[np.float32]:
    """Approximate cosines of vectors of which so many bits differ, of either sign.

    >>> bit_cosines(np.array([0.0, 8.0]), 8).tolist()
    [1.0, -1.0]
    """
    cosines: NDArray[np.float32] = np.cos(np.pi / dim * different, dtype=np.float32)
    return cosines


def _different_bits(queries: NDArray[np.uint8], codes: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The bits in which each query differs from each code, (queries, codes)."""
    words = -(-codes.shape[1] // 8)
    found = np.zeros((len(queries), len(codes)), np.uint16)
    if not hasattr(np, "bitwise_count"):  # numpy before 2.0
        for byte in range(codes.shape[1]):
            found += BITS[queries[:, byte, None] ^ codes[None, :, byte]]
        return found.astype(np.float32)
    asked, there = (_as_words(each, words) for each in (queries, codes))
    for word in range(words):
        found += np.bitwise_count(asked[:, word, None] ^ there[None, :, word])
    return found.astype(np.float32)


def _as_words(codes: NDArray[np.uint8], words: int) -> NDArray[np.uint64]:
    """Bytes as words of 64 bits, the last one filled with zeros."""
    padded = np.zeros((len(codes), 8 * words), np.uint8)
    padded[:, : codes.shape[1]] = codes
    return padded.view(np.uint64)
