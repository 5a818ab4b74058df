"""The index of a gallery: the kinds there are, their options, and rows of a table in them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from kinspace._core import checks
from kinspace.search.compact import PRECISIONS
from kinspace.search.exact import ExactIndex
from kinspace.search.faiss_index import FaissIndex, check_training_size
from kinspace.search.gallery_files import GalleryFiles, Snapshot
from kinspace.search.gallery_rows import GalleryRows
from kinspace.search.index import Index
from kinspace.search.milvus import MilvusIndex
from kinspace.search.milvus_client import check_server
from kinspace.search.milvus_vectors import check_milvus_precision
from kinspace.search.reranked import Reranked

__all__ = [
    "FACTORS",
    "INDEXES",
    "IndexOptions",
    "check_index",
    "check_precision",
    "check_size",
    "has_rows",
    "new_milvus_index",
    "put_rows",
    "without_reranking",
]

INDEXES: dict[str, type[ExactIndex | FaissIndex | MilvusIndex]] = {
    "exact": ExactIndex,
    "faiss": FaissIndex,
    "milvus": MilvusIndex,
}
FACTORS = {"int8": 4, "binary": 20}  # candidates per result


class IndexOptions(TypedDict, total=False):
    """`precision` of exact and Milvus, `kind` and `effort` of faiss, the others of Milvus."""

    precision: str
    kind: str
    effort: int
    uri: str | Path
    name: str | None
    token: str | None
    index_type: str


def check_index(backend: str, options: Mapping[str, Any], count: int) -> None:
    """Raise a ValueError if an index of `count` pictures cannot be built.

    To be called before the pictures are embedded, which may take hours.

    >>> check_index("faiss", {"kind": "ivf_pq"}, 10)
    Traceback (most recent call last):
    ValueError: ivf_pq: expected at least 9,984 vectors in the first `add`, to train on, got 10;
    use kind 'hnsw' or the exact search, which is fast for so few
    """
    checks.lookup("index", backend, INDEXES)
    if backend == "exact":
        check_precision(options)
    if backend == "faiss":
        check_training_size(FaissIndex(1, **options).kind, count)
    if backend == "milvus":
        uri = str(options.get("uri", ""))
        check_milvus_precision(uri, options.get("precision", "float32"))
        if "://" in uri:
            check_server(uri, options.get("name"), options.get("token"))


def check_precision(options: Mapping[str, Any]) -> None:
    """Raise a ValueError for options that are none of the exact index."""
    if unknown := options.keys() - {"precision"}:
        raise ValueError(f"{min(unknown)}: expected with another index than the exact one")
    checks.choice("precision", options.get("precision", "float32"), PRECISIONS)


def put_rows(index: Index, rows: GalleryRows, keys: NDArray[np.int64]) -> None:
    """Make an index have for these keys what the rows have: the row, or nothing."""
    places = rows.rows_of(keys)
    if (places < 0).any():
        index.delete(keys[places < 0])
    there = places[places >= 0]
    if not len(there):
        return
    table, columns = rows.table, None
    if table.attributes is not None:
        values = table.attributes[there] > 0.5
        columns = {name: values[:, i] for i, name in enumerate(table.attribute_names)}
    labels = None if table.labels is None else table.labels[there]
    index.add(table.vectors[there], rows.keys[there], labels, columns)


def without_reranking(index: Index | None) -> Index | None:
    """The index below one that is re-ranked; any other index unchanged."""
    return index.index if isinstance(index, Reranked) else index


def check_size(index: Index, read: Snapshot, files: GalleryFiles) -> None:
    """Raise a ValueError for an index of another number of rows than the gallery's."""
    if len(index) != len(read.rows.table):
        raise ValueError(
            f"{files.folder}: expected an index of the {len(read.rows.table)} pictures of the "
            f"gallery, got one of {len(index)}; build it again with: kinspace index --rebuild "
            f"{files.folder}"
        )


def has_rows(index: MilvusIndex, rows: GalleryRows, keys: NDArray[np.int64]) -> bool:
    """Whether an index has these keys as the rows have them: with their label, or not at all."""
    places = rows.rows_of(keys)
    labels = rows.table.labels
    wanted = {
        int(key): -1 if labels is None else int(labels[place])
        for key, place in zip(keys.tolist(), places.tolist(), strict=True)
        if place >= 0
    }
    return index.labels_of(keys) == wanted


def new_milvus_index(folder: Path, dim: int, options: Mapping[str, Any]) -> MilvusIndex:
    """The next version of the collection, which `save` publishes."""
    options = {"uri": folder / "milvus.db", **options}
    precision = options.pop("precision", "float32")
    try:
        current = MilvusIndex(**options)
    except ValueError:  # the name is new
        return MilvusIndex(dim=dim, precision=precision, **options).pinned()
    return current.next_version(dim, precision=precision)
