"""The gallery: the pictures a model searches in, as a table with an index.

Files in a run folder:

gallery.npz       the EmbeddingTable
search.json       the kind of index, if it is not the exact one
search-faiss.npz, search-milvus.json    that index

`index_run` makes it from a run and pictures, with its thresholds: `kinspace index`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import numpy as np
import torch
from numpy.typing import NDArray

from kinspace._core import checks
from kinspace._core.atomic_files import write_atomically, write_json
from kinspace.embeddings import EmbeddingTable, unique_names
from kinspace.evaluation.thresholds import DEFAULT_STRANGERS, Thresholds
from kinspace.run import PARTS, Run, Splits, open_run
from kinspace.search.class_votes import Added, ClusterClassifier, Neighbor, nearest_class
from kinspace.search.exact import ExactIndex
from kinspace.search.faiss_index import FaissIndex, check_training_size
from kinspace.search.index import Index, Where, recall_against_exact
from kinspace.search.milvus import MilvusIndex
from kinspace.search.milvus_client import check_server
from kinspace.search.reranked import Reranked

if TYPE_CHECKING:
    from kinspace.inference.model import EmbeddingModel

__all__ = [
    "FILE",
    "INDEXES",
    "Gallery",
    "IndexOptions",
    "check_index",
    "gallery_recall",
    "index_run",
]

INDEXES: dict[str, type[ExactIndex | FaissIndex | MilvusIndex]] = {
    "exact": ExactIndex,
    "faiss": FaissIndex,
    "milvus": MilvusIndex,
}

FILE, INDEX_FILE = "gallery.npz", "search.json"
FILES = {"faiss": "search-faiss.npz", "milvus": "search-milvus.json"}


class IndexOptions(TypedDict, total=False):
    """Options of an index: `kind` of faiss; `uri`, `name`, `token`, `index_type` of Milvus."""

    kind: str
    effort: int
    uri: str | Path
    name: str | None
    token: str | None
    index_type: str


class Gallery:
    """A table and an index of its rows.

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
        self._clusters: ClusterClassifier | None = None

    @staticmethod
    def of_pictures(
        vectors: NDArray[Any],
        names: Sequence[str] | None,
        paths: Sequence[str | None],
        *,
        device: str | torch.device = "cpu",
    ) -> Gallery:
        """A new gallery of these vectors, their class names if there are any, and their files."""
        return Gallery(_rows(vectors, names, paths), device=device)

    @property
    def index(self) -> Index:
        """The index of the rows; an exact one is built when it is first needed."""
        if self._index is None:
            self._index = ExactIndex(self.table.dim, device=self._device)
            self._add_to_index(range(len(self.table)))
        return self._index

    def build(self, folder: Path, backend: str, **options: Unpack[IndexOptions]) -> None:
        """Build a new index, one of INDEXES; the options are those of its class."""
        checks.lookup("index", backend, INDEXES)
        given: dict[str, Any] = {**options}
        if backend == "faiss":
            self._index = self._with_full_vectors(FaissIndex(self.table.dim, **given))
        elif backend == "milvus":
            self._index = _new_milvus_index(folder, self.table.dim, given)
        else:
            self._index = ExactIndex(self.table.dim, device=self._device, **given)
        self.backend = backend
        self._add_to_index(range(len(self.table)))
        if isinstance(self._index, MilvusIndex):
            self._index.publish()

    def _with_full_vectors(self, index: Index) -> Index:
        """An index of compressed vectors re-ranked with the table; any other index unchanged."""
        if isinstance(index, FaissIndex) and index.kind == "ivf_pq":
            return Reranked(index, lambda rows: self.table.vectors[rows])
        return index

    def _add_to_index(self, rows: Sequence[int]) -> None:
        table, ids = self.table, np.asarray(rows)
        assert self._index is not None
        columns = None
        if table.attributes is not None:
            values = table.attributes[ids] > 0.5
            columns = {name: values[:, i] for i, name in enumerate(table.attribute_names)}
        labels = None if table.labels is None else table.labels[ids]
        self._index.add(table.vectors[ids], ids, labels, columns)

    def row_of(self, picture: str | int) -> int:
        """The row of a picture, given its id or row."""
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
    ) -> list[Neighbor]:
        """The k rows nearest to a vector."""
        by_label = None if where is None else self._with_labels(where)
        ids, cosines = self.index.search(np.asarray(vector)[None], k, where=by_label)
        return [
            self._neighbor(row, cosine)
            for row, cosine in zip(ids[0].tolist(), cosines[0].tolist(), strict=True)
            if row >= 0
        ]

    def _with_labels(self, where: Where) -> Where:
        """A filter with labels instead of class names."""
        label_of = {name: label for label, name in enumerate(self.table.class_names or ())}
        found: dict[str, Any] = {}
        for name, values in where.items():
            if name == "class":
                names = values if isinstance(values, (list, tuple)) else [values]
                found["label"] = [checks.lookup("class", str(each), label_of) for each in names]
            else:
                found[checks.lookup("attribute", name, self._filters)] = values
        return found

    @property
    def _filters(self) -> Mapping[str, str]:
        return {name: name for name in ("label", *self.table.attribute_names)}

    def _neighbor(self, row: int, cosine: float) -> Neighbor:
        table = self.table
        label = -1 if table.labels is None else int(table.labels[row])
        return Neighbor(
            row,
            table.ids[row],
            table.paths[row] if table.paths else None,
            table.class_name(label) if label >= 0 else "",
            label,
            cosine,
            None,
        )

    @cached_property
    def class_sizes(self) -> NDArray[np.int64]:
        """Pictures of each class, (classes,); a ValueError for a gallery without classes."""
        if self.table.labels is None:
            raise ValueError("classify: expected a gallery with classes, got one without")
        return np.bincount(self.table.labels)

    def knc(self, vector: NDArray[Any], options: Mapping[str, Any]) -> tuple[int, float]:
        """The label by the nearest clusters, and its probability; options: recipe.index."""
        if self._clusters is None:
            self._clusters = ClusterClassifier.fit(self.table, options)
        return self._clusters.classify(vector)

    def add(
        self,
        vectors: NDArray[Any],
        names: Sequence[str] | None,
        paths: Sequence[str | None],
        thresholds: Thresholds | None,
    ) -> list[Added]:
        """Add rows with class names; returns what was added to each class.

        names: None for a gallery without classes. thresholds: decide whether a class is confusable
        with another.
        """
        before = self.table
        if names is not None and (before.labels is None or before.class_names is None):
            raise ValueError(
                "add: expected a gallery with class names, got one without; leave labels out"
            )
        if names is None and before.labels is not None:
            raise ValueError("labels: expected a class name for each picture, got none")
        added = [
            nearest_class(before, name, vectors[[each == name for each in names or ()]], thresholds)
            for name in dict.fromkeys(names or ())
        ]
        more = _rows(vectors, names, paths, before)
        index = self.index  # built of the rows before, if there is none
        self.table = EmbeddingTable.concat([before, more])
        self._index = index
        self._add_to_index(range(len(before), len(self.table)))
        self._clusters = None
        for name in ("class_sizes", "_rows"):
            self.__dict__.pop(name, None)
        return added

    def save(self, folder: Path) -> None:
        """Write the table, and the index unless it is exact, to a run folder."""
        write_atomically(folder / FILE, self.table.save)
        if self.backend == "exact":
            (folder / INDEX_FILE).unlink(missing_ok=True)
            return
        self.index.save(folder / FILES[self.backend])
        write_json(folder / INDEX_FILE, {"search": self.backend, "rows": len(self.table)})

    @staticmethod
    def load(folder: Path, device: str | torch.device = "cpu") -> Gallery:
        """The gallery in a run folder."""
        gallery = Gallery(EmbeddingTable.load(folder / FILE), device=device)
        path = folder / INDEX_FILE
        if not path.exists():
            return gallery
        try:
            about = json.loads(path.read_text(encoding="utf-8"))
            gallery.backend, rows = str(about["search"]), about["rows"]
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{path}: expected the kind of an index, got {error!r}") from None
        file = folder / checks.lookup("index", gallery.backend, FILES)
        gallery._index = gallery._with_full_vectors(INDEXES[gallery.backend].load(file))
        if not rows == len(gallery.table) == len(gallery._index):
            raise ValueError(
                f"{path}: expected an index of the {len(gallery.table)} pictures of the gallery, "
                f"got one of {len(gallery._index)}; build it again with: kinspace index {folder}"
            )
        return gallery


def _rows(
    vectors: NDArray[Any],
    names: Sequence[str] | None,
    paths: Sequence[str | None],
    before: EmbeddingTable | None = None,
) -> EmbeddingTable:
    """Rows to add to a table, or the first ones."""
    classes = tuple(dict.fromkeys(names or ()))
    taken = () if before is None else before.ids
    no_paths = not any(paths) if before is None else before.paths is None
    attributes = () if before is None else before.attribute_names
    return EmbeddingTable(
        vectors,
        None if names is None else np.array([classes.index(name) for name in names]),
        tuple(unique_names((Path(p).name if p else "added" for p in paths), taken)),
        None if no_paths else tuple(path or "" for path in paths),
        np.zeros((len(vectors), len(attributes)), np.float32) if attributes else None,
        attributes,
        None if names is None else classes,
    )


def check_index(backend: str, options: Mapping[str, Any], count: int) -> None:
    """Raise a ValueError if an index of `count` pictures cannot be built.

    To be called before the pictures are embedded, which may take hours.

    >>> check_index("faiss", {"kind": "ivf_pq"}, 10)
    Traceback (most recent call last):
    ValueError: ivf_pq: expected at least 9,984 vectors in the first `add`, to train on, got 10;
    use kind 'hnsw' or the exact search, which is fast for so few
    """
    checks.lookup("index", backend, INDEXES)
    if backend == "faiss":
        check_training_size(FaissIndex(1, **options).kind, count)
    if backend == "milvus" and "://" in str(options.get("uri", "")):
        check_server(str(options["uri"]), options.get("name"), options.get("token"))


def _new_milvus_index(folder: Path, dim: int, options: Mapping[str, Any]) -> MilvusIndex:
    """The next version of the collection, to be published when it is full."""
    options = {"uri": folder / "milvus.db", **options}
    try:
        current = MilvusIndex(**options)
    except ValueError:  # the name is new
        return MilvusIndex(dim=dim, **options)
    return current.next_version(dim)


def index_run(  # noqa: PLR0913 - the options of `kinspace index`
    run: Run | str | Path,
    data: Any = None,
    *,
    backend: str = "exact",
    options: Mapping[str, Any] | None = None,
    device: str | torch.device | None = None,
    batch_size: int = 64,
    workers: int = 0,
    strangers: float = DEFAULT_STRANGERS,
    progress: Callable[[int, int], object] | None = None,
) -> EmbeddingModel:
    """Make a data set the gallery of a run: table, thresholds and index go to the run folder.

    data: by default what the run was trained and tested on. Each of its pictures has the attribute
    part=train, part=validation or part=test. strangers: the dial of the thresholds, which are set
    on the classes that the model was not trained on (`EmbeddingModel.calibrate`).
    backend, options: one of INDEXES, and the options of its class. batch_size, workers: for reading
    other data; the run's own is taken from `Run.embeddings`.
    """
    from kinspace.inference.dataset_embedding import embed_dataset
    from kinspace.inference.run_embeddings import RunEmbeddings

    run = run if isinstance(run, Run) else open_run(run)
    model, splits = run.model(device), run.splits(data)
    check_index(backend, options or {}, len(splits.whole))
    if splits.own:
        tables = RunEmbeddings(run, splits, device=device, workers=workers, progress=progress)
        table = _with_parts(tables.table("all"), splits)
    else:
        table = embed_dataset(
            model, splits.whole, batch_size=batch_size, workers=workers, progress=progress
        )
    model.gallery = Gallery(table, device=model.device)
    model.calibrate(strangers)
    if backend != "exact":
        model.gallery.build(run.folder, backend, **(options or {}))
    model.save_gallery()
    return model


def gallery_recall(model: EmbeddingModel, k: int = 10, *, queries: int = 1000) -> tuple[float, int]:
    """The share of the k exact neighbors that the gallery's index finds; the number of queries.

    The queries are evenly spaced pictures of the gallery, about as many as `queries`.
    """
    table = model.table
    exact = ExactIndex(table.dim, device=model.device)
    exact.add(table.vectors, range(len(table)))
    some = table.vectors[:: max(1, len(table) // queries)]
    return recall_against_exact(model.index, exact, some, k), len(some)


def _with_parts(table: EmbeddingTable, splits: Splits) -> EmbeddingTable:
    """The table with an attribute for each part."""
    columns = np.zeros((len(table), len(PARTS)), np.float32)
    for name, part in splits.parts.items():
        columns[part.indices_in(splits.whole).numpy(), PARTS.index(name)] = 1
    before = table.attributes
    return replace(
        table,
        attributes=columns if before is None else np.concatenate([before, columns], 1),
        attribute_names=(*table.attribute_names, *(f"part={name}" for name in PARTS)),
    )
