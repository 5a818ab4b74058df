"""The pictures a model searches in: their table and its index.

gallery.npz       the EmbeddingTable
search.json       which search, where it is not the exact one; its own files are beside it
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kinspace._core import checks
from kinspace._core.atomic_files import write_atomically
from kinspace._core.json_files import write_json
from kinspace.embeddings import EmbeddingTable
from kinspace.search import (
    SEARCHES,
    ExactIndex,
    FaissIndex,
    Index,
    MilvusIndex,
    Reranked,
    Where,
)
from kinspace.search.answers import Added, Neighbor
from kinspace.search.class_votes import Clusters, class_variance, nearest_class, soft_knn
from kinspace.search.faiss_index import check_enough
from kinspace.search.milvus_requests import check_server

__all__ = ["FILE", "Gallery", "check_search"]

FILE, SEARCH = "gallery.npz", "search.json"
FILES = {"faiss": "search-faiss.npz", "milvus": "search-milvus.json"}
LOADERS: dict[str, Callable[[Path], Index]] = {"faiss": FaissIndex.load, "milvus": MilvusIndex.load}


class Gallery:
    """A table and the index of its rows.

    >>> table = EmbeddingTable(np.eye(2), [0, 1], ids=("a", "b"), class_names=("io", "luna"))
    >>> Gallery(table).near(np.array([0.1, 1.0]), 1)[0].class_name
    'luna'
    """

    def __init__(
        self, table: EmbeddingTable, *, device: str | torch.device = "cpu", backend: str = "exact"
    ) -> None:
        self.table = table
        self.backend = backend
        self._device = device
        self._index: Index | None = None
        self._clusters: Clusters | None = None

    @property
    def index(self) -> Index:
        """The search over the rows; the exact one is made when it is first needed."""
        if self._index is None:
            self._index = ExactIndex(self.table.dim, device=self._device)
            self._fill(range(len(self.table)))
        return self._index

    def build(self, folder: Path, backend: str, **options: Any) -> None:
        """Make the index anew by one of SEARCHES; options are those of its class."""
        make = checks.lookup("search", backend, SEARCHES)
        if backend == "exact":
            options = {"device": self._device, **options}
        if backend == "milvus":
            self._index = _empty_milvus(folder, self.table.dim, options)
        else:
            self._index = self._exact_in_the_end(make(self.table.dim, **options))
        self.backend = backend
        self._fill(range(len(self.table)))
        if isinstance(self._index, MilvusIndex):
            self._index.publish()

    def _exact_in_the_end(self, index: Index) -> Index:
        """An index of codes alone, put in order by the table; any other as it is."""
        if isinstance(index, FaissIndex) and index.kind == "ivf_pq":
            return Reranked(index, lambda rows: self.table.vectors[rows])
        return index

    def _fill(self, rows: Sequence[int]) -> None:
        table, places = self.table, np.asarray(rows)
        assert self._index is not None
        columns = None
        if table.attributes is not None:
            has = table.attributes[places] > 0.5
            columns = {name: has[:, i] for i, name in enumerate(table.attribute_names)}
        labels = None if table.labels is None else table.labels[places]
        self._index.add(table.vectors[places], places, labels, columns)

    def row_of(self, picture: str | int) -> int:
        """The row of a picture by its id; a row as it is, if there is one."""
        if isinstance(picture, str):
            return checks.lookup("picture", picture, self._rows)
        if not 0 <= checks.integer("picture", picture, at_least=0) < len(self.table):
            raise ValueError(f"picture: expected less than {len(self.table)}, got {picture}")
        return picture

    @cached_property
    def _rows(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.table.ids)}

    def near(
        self,
        vector: NDArray[Any],
        k: int,
        where: Where | None = None,
        same: float | None = None,
    ) -> list[Neighbor]:
        """The k rows nearest to a vector. same: from which cosine on two are of one kind."""
        wanted = None if where is None else self._where(where)
        ids, cosines = self.index.search(np.asarray(vector)[None], k, where=wanted)
        return [
            self._neighbor(row, cosine, same)
            for row, cosine in zip(ids[0].tolist(), cosines[0].tolist(), strict=True)
            if row >= 0
        ]

    def _where(self, where: Where) -> Where:
        """Class names as labels."""
        numbers = {name: label for label, name in enumerate(self.table.class_names or ())}
        found: dict[str, Any] = {}
        for name, values in where.items():
            if name == "class":
                names = values if isinstance(values, (list, tuple)) else [values]
                found["label"] = [checks.lookup("class", str(each), numbers) for each in names]
            else:
                found[checks.lookup("attribute", name, self._filters)] = values
        return found

    @property
    def _filters(self) -> Mapping[str, str]:
        return {name: name for name in ("label", *self.table.attribute_names)}

    def _neighbor(self, row: int, cosine: float, same: float | None) -> Neighbor:
        table = self.table
        label = -1 if table.labels is None else int(table.labels[row])
        return Neighbor(
            row,
            table.ids[row],
            table.paths[row] if table.paths else None,
            table.class_name(label) if label >= 0 else "",
            label,
            cosine,
            None if same is None else cosine >= same,
        )

    @cached_property
    def _variance(self) -> float:
        return class_variance(self.table)

    def soft_knn(self, near: Sequence[Neighbor]) -> tuple[str, float]:
        """The class with most votes of the neighbors, and its share of them."""
        return soft_knn(near, self._variance)

    def knc(self, vector: NDArray[Any], options: Mapping[str, Any]) -> tuple[str, float]:
        """The class by the nearest clusters, and its probability; options as in recipe.index."""
        if self._clusters is None:
            self._clusters = Clusters.of(self.table, options)
        label, share = self._clusters.vote(vector)
        return self.table.class_name(label), share

    def add(
        self,
        vectors: NDArray[Any],
        names: Sequence[str],
        paths: Sequence[str | None],
        limit: float | None,
    ) -> list[Added]:
        """Put rows in under class names; what became of each class."""
        before = self.table
        if before.labels is None or before.class_names is None:
            raise ValueError("add: expected a gallery with class names, got one without")
        classes = tuple(dict.fromkeys(names))
        said = [
            nearest_class(before, name, vectors[[each == name for each in names]], limit)
            for name in classes
        ]
        more = EmbeddingTable(
            vectors,
            np.array([classes.index(name) for name in names]),
            _new_ids(before.ids, paths),
            None if before.paths is None else tuple(path or "" for path in paths),
            None
            if before.attributes is None
            else np.zeros((len(vectors), len(before.attribute_names)), np.float32),
            before.attribute_names,
            classes,
        )
        index = self.index  # of the rows before
        self.table = EmbeddingTable.concat([before, more])
        self._index = index
        self._fill(range(len(before), len(self.table)))
        self._clusters = None
        for name in ("_variance", "_rows"):
            self.__dict__.pop(name, None)
        return said

    def save(self, folder: Path) -> None:
        """Write the table, and the index where it is not the exact one, to a run folder."""
        write_atomically(folder / FILE, self.table.save)
        if self.backend == "exact":
            (folder / SEARCH).unlink(missing_ok=True)
            return
        self.index.save(folder / FILES[self.backend])
        write_json(folder / SEARCH, {"search": self.backend, "rows": len(self.table)})

    @staticmethod
    def load(folder: Path, device: str | torch.device = "cpu") -> Gallery:
        """The gallery of a run folder."""
        gallery = Gallery(EmbeddingTable.load(folder / FILE), device=device)
        path = folder / SEARCH
        if not path.exists():
            return gallery
        try:
            about = json.loads(path.read_text(encoding="utf-8"))
            gallery.backend, rows = str(about["search"]), about["rows"]
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{path}: expected what to search by, got {error!r}") from None
        read = checks.lookup("search", gallery.backend, LOADERS)
        gallery._index = gallery._exact_in_the_end(read(folder / FILES[gallery.backend]))
        if not rows == len(gallery.table) == len(gallery._index):
            raise ValueError(
                f"{path}: expected an index of the {len(gallery.table)} pictures of the gallery, "
                f"got one of {len(gallery._index)}; make it anew with: kinspace index {folder}"
            )
        return gallery


def check_search(backend: str, options: Mapping[str, Any], count: int) -> None:
    """Whether a search of so many pictures can be made; a ValueError if not.

    Asked before they are embedded, which may take hours.

    >>> check_search("faiss", {"kind": "ivf_pq"}, 10)
    Traceback (most recent call last):
    ValueError: ivf_pq: expected at least 9,984 vectors in the first `add`, to learn from, got 10;
    use kind 'hnsw' or the exact search, which is fast for so few
    """
    checks.lookup("search", backend, SEARCHES)
    if backend == "faiss":
        check_enough(FaissIndex(1, **options).kind, count)
    if backend == "milvus" and "://" in str(options.get("uri", "")):
        check_server(str(options["uri"]), options.get("name"), options.get("token"))


def _empty_milvus(folder: Path, dim: int, options: Mapping[str, Any]) -> MilvusIndex:
    """The next version of the collection, to be put behind the name when it is full."""
    options = dict(options)
    uri = options.pop("uri", folder / "milvus.db")
    try:
        old = MilvusIndex(uri, **options)
    except ValueError:  # there is none of that name yet
        return MilvusIndex(uri, dim, **options)
    return old.next_version(dim)


def _new_ids(taken: Sequence[str], paths: Sequence[str | None]) -> tuple[str, ...]:
    """A name each: that of its file, numbered where there is one already."""
    used, made = set(taken), []
    for path in paths:
        plain = Path(path).name if path else "added"
        name, number = plain, 2
        while name in used:
            name, number = f"{plain} {number}", number + 1
        used.add(name)
        made.append(name)
    return tuple(made)
