"""The gallery: the pictures a model searches in, as a table with an index.

`kinspace.search.gallery_files` has the files in a run folder and says when they change,
`run_gallery` makes a gallery of a run and its pictures.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch
from numpy.typing import NDArray

from kinspace._core import checks
from kinspace.embeddings import EmbeddingTable, unique_names
from kinspace.evaluation.thresholds import Thresholds
from kinspace.search.class_votes import Added, ClusterClassifier, Neighbor, nearest_class
from kinspace.search.compact import CompactIndex
from kinspace.search.exact import ExactIndex
from kinspace.search.faiss_index import FaissIndex
from kinspace.search.gallery_files import FILE, GalleryFiles, Snapshot, new_generation
from kinspace.search.gallery_index import (
    FACTORS,
    INDEXES,
    IndexOptions,
    check_precision,
    check_size,
    has_rows,
    new_milvus_index,
    put_rows,
    without_reranking,
)
from kinspace.search.gallery_rows import Change, GalleryRows
from kinspace.search.index import Index, Where
from kinspace.search.milvus import MilvusIndex
from kinspace.search.neighbor_order import POOL, RERANKINGS, neighbor_order
from kinspace.search.reranked import Reranked

__all__ = ["FILE", "Gallery"]

SETTINGS = ("backend", "precision", "rerank")
ATTEMPTS = 5  # of a search or a load, while other threads and processes change the gallery
JOURNAL = 2**24  # bytes: a journal longer than this, and than the gallery, is taken into it


class Gallery:
    """A table and an index of its rows.

    Any number of threads may search and change a gallery at one time. A search sees the rows that
    were there when it answers; changes wait for each other. In a run folder (`load`, or after
    `save`) a change is in a journal on the disk before anything else is changed: when `add`,
    `remove` or `relabel` return it is there to stay, and `load` finds it. Processes that change one
    folder wait for each other too, and each first takes in what the others have changed.

    >>> table = EmbeddingTable(np.eye(2), [0, 1], ids=("a", "b"), class_names=("io", "luna"))
    >>> Gallery(table).near(np.array([0.1, 1.0]), 1)[0].class_name
    'luna'
    """

    def __init__(
        self, table: EmbeddingTable, *, device: str | torch.device = "cpu", backend: str = "exact"
    ) -> None:
        self.backend = backend
        self.precision = "float32"  # of the vectors of an exact index, or of one in Milvus
        self.rerank = "none"  # the order in which neighbors are shown, of RERANKINGS
        self.address: Mapping[str, str] = {}  # where its files say that the index is
        self._rows = GalleryRows.of(table)
        self._device = device
        self._index: Index | None = None
        self._clusters: tuple[GalleryRows, ClusterClassifier] | None = None
        self._changing = threading.RLock()
        self._files: GalleryFiles | None = None
        self._generation = ""
        self._journaled = 0  # the place in the journal that the rows have come to

    @staticmethod
    def of_pictures(
        vectors: NDArray[Any],
        names: Sequence[str] | None,
        paths: Sequence[str | None],
        *,
        device: str | torch.device = "cpu",
    ) -> Gallery:
        """A new gallery of these vectors, their class names if there are any, and their files."""
        return Gallery(_new_rows(vectors, names, paths), device=device)

    @property
    def table(self) -> EmbeddingTable:
        """The rows as they are now."""
        return self._rows.table

    @property
    def index(self) -> Index:
        """The index of the rows' keys; an exact one is built when it is first needed."""
        index = self._index
        if index is None:
            with self._changing:
                if self._index is None:
                    made = self._new_exact_index()
                    put_rows(made, self._rows, self._rows.keys)
                    self._index = made
                index = self._index
        return index

    @property
    def keys(self) -> NDArray[np.int64]:
        """The id of each row in the index: its number, until rows before it are removed."""
        return self._rows.keys

    def build(self, folder: Path, backend: str, **options: Unpack[IndexOptions]) -> None:
        """Build a new index, one of INDEXES; the options are those of its class."""
        checks.lookup("index", backend, INDEXES)
        given: dict[str, Any] = {**options}
        with self._changing:
            if backend == "exact":
                check_precision(given)
            self.precision = given.get("precision", "float32")
            if backend == "faiss":
                index = self._with_full_vectors(FaissIndex(self.table.dim, **given))
            elif backend == "milvus":
                made = new_milvus_index(folder, self.table.dim, given)
                index = self._with_full_vectors(made)
            else:
                index = self._new_exact_index()
            put_rows(index, self._rows, self._rows.keys)
            self._index, self.backend = index, backend

    def _new_exact_index(self) -> Index:
        """An empty one; compact vectors are re-ranked with the table."""
        if self.precision == "float32":
            return ExactIndex(self.table.dim, device=self._device)
        return self._with_full_vectors(CompactIndex(self.table.dim, self.precision))

    def _with_full_vectors(self, index: Index) -> Index:
        """An index of compressed vectors re-ranked with the table; any other index unchanged."""
        if isinstance(index, FaissIndex) and index.kind == "ivf_pq":
            return Reranked(index, self._vectors_of)
        if self.precision != "float32":
            return Reranked(index, self._vectors_of, factor=FACTORS[self.precision])
        return index

    def _vectors_of(self, keys: NDArray[np.int64]) -> NDArray[Any]:
        return self._rows.vectors_of(keys)

    def row_of(self, picture: str | int) -> int:
        """The row of a picture, given its id or row."""
        if isinstance(picture, str):
            return checks.lookup("picture", picture, self._rows.row_of_id)
        if not 0 <= checks.integer("picture", picture, at_least=0) < len(self.table):
            raise ValueError(f"picture: expected less than {len(self.table)}, got {picture}")
        return picture

    def near(
        self,
        vector: NDArray[Any],
        k: int,
        where: Where | None = None,
    ) -> list[Neighbor]:
        """The k rows nearest to a vector."""
        by_label = None if where is None else self._with_labels(where)
        query, asked = np.asarray(vector)[None], k
        for _ in range(ATTEMPTS):
            keys, cosines = self.index.search(query, asked, where=by_label)
            state = self._rows
            rows = np.where(keys[0] >= 0, state.rows_of(keys[0]), -1)
            gone = int(((keys[0] >= 0) & (rows < 0)).sum())  # removed while this searched
            if not gone:
                break
            asked = k + 2 * gone
        found = [
            _neighbor(state.table, row, cosine)
            for row, cosine in zip(rows.tolist(), cosines[0].tolist(), strict=True)
            if row >= 0
        ]
        return found[:k]

    def ranked(self, vector: NDArray[Any], k: int, where: Where | None = None) -> list[Neighbor]:
        """The k rows to show for a vector: the nearest, in the order of `rerank`."""
        if self.rerank == "none":
            return self.near(vector, k, where)
        found = self.near(vector, max(k, POOL), where)
        vectors = self.table.vectors[[each.row for each in found]]
        order = neighbor_order(self.rerank, np.asarray(vector), vectors)
        return [found[place] for place in order[:k]]

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

    @property
    def class_sizes(self) -> NDArray[np.int64]:
        """Pictures of each class, (classes,); a ValueError for a gallery without classes."""
        return self._rows.class_sizes

    def knc(self, vector: NDArray[Any], options: Mapping[str, Any]) -> tuple[int, float]:
        """The label by the nearest clusters, and its probability; options: recipe.index."""
        rows, known = self._rows, self._clusters
        if known is None or known[0] is not rows:
            known = (rows, ClusterClassifier.fit(rows.table, options))
            self._clusters = known
        return known[1].classify(vector)

    def add(
        self,
        vectors: NDArray[Any],
        names: Sequence[str] | None,
        paths: Sequence[str | None],
        thresholds: Thresholds | None,
        ids: Sequence[str] | None = None,
    ) -> list[Added]:
        """Add rows with class names; returns what was added to each class.

        names: None for a gallery without classes. thresholds: decide whether a class is confusable
        with another. ids: by default the names of the files; one that is taken is numbered.
        """
        with self._changes("adding pictures"):
            before = self.table
            if names is not None and (before.labels is None or before.class_names is None):
                raise ValueError(
                    "add: expected a gallery with class names, got one without; leave labels out"
                )
            if vectors.ndim != 2 or vectors.shape[1] != before.dim:
                raise ValueError(
                    f"vectors: expected shape (pictures, {before.dim}), got {vectors.shape}"
                )
            if names is None and before.labels is not None:
                raise ValueError("labels: expected a class name for each picture, got none")
            added = [
                nearest_class(
                    before, name, vectors[[each == name for each in names or ()]], thresholds
                )
                for name in dict.fromkeys(names or ())
            ]
            self.append(_new_rows(vectors, names, paths, ids))
        return added

    def append(self, table: EmbeddingTable) -> None:
        """Add the rows of a table; ids that are taken are numbered, other attributes left out."""
        with self._changes("adding pictures"):
            start, known = self._rows.next_key, self.table
            columns: NDArray[Any] | None = None
            if known.attribute_names:
                columns = np.zeros((len(table), len(known.attribute_names)), np.float32)
                for place, name in enumerate(known.attribute_names):
                    if name in table.attribute_names and table.attributes is not None:
                        columns[:, place] = table.attributes[:, table.attribute_names.index(name)]
            paths = table.paths
            if paths is None and known.paths is not None:
                paths = ("",) * len(table)
            more = replace(
                table,
                ids=tuple(unique_names(table.ids, known.ids)),
                paths=paths,
                attributes=columns,
                attribute_names=known.attribute_names,
            )
            self._make(Change("add", np.arange(start, start + len(more)), more))

    def remove(self, pictures: Sequence[str | int]) -> int:
        """Remove rows by id or row; returns how many there were. One has to stay."""
        with self._changes("removing pictures"):
            keys = self._keys_of(pictures)
            if len(keys):
                self._make(Change("remove", keys))
        return len(keys)

    def relabel(self, pictures: Sequence[str | int], class_name: str) -> int:
        """Give rows another class, which may be new; returns how many were of another one."""
        with self._changes("relabeling pictures"):
            keys = self._keys_of(pictures)
            after = self._rows.after(Change("relabel", keys, class_name=class_name)).table
            changed = self._rows.keys[after.labels != self.table.labels]
            if len(changed):
                self._make(Change("relabel", changed, class_name=class_name))
        return len(changed)

    def find(self, pictures: Sequence[str | int] = (), class_name: str | None = None) -> list[str]:
        """The ids of pictures, given their ids, rows or files, and of all pictures of a class.

        >>> table = EmbeddingTable(np.eye(2), [0, 1], ids=("a", "b"), class_names=("io", "luna"))
        >>> Gallery(table).find([1], "luna")
        ['b']
        """
        table = self.table
        rows = set[int]()
        if class_name is not None:
            names = {name: label for label, name in enumerate(table.class_names or ())}
            label = checks.lookup("class", class_name, names)
            assert table.labels is not None
            rows |= set(np.flatnonzero(table.labels == label).tolist())
        files: dict[str, int] = {}
        for picture in pictures:
            if isinstance(picture, str) and picture not in self._rows.row_of_id:
                files = files or {path: row for row, path in enumerate(table.paths or ()) if path}
                if (path := str(Path(picture).absolute())) in files:
                    rows.add(files[path])
                    continue
            rows.add(self.row_of(picture))
        return [table.ids[row] for row in sorted(rows)]

    def _keys_of(self, pictures: Sequence[str | int]) -> NDArray[np.int64]:
        rows = sorted({self.row_of(picture) for picture in pictures})
        return self._rows.keys[np.array(rows, np.int64)]

    @contextmanager
    def _changes(self, what: str) -> Iterator[None]:
        """Be the only thread and, in a run folder, the only process that changes the gallery."""
        with self._changing:
            if self._files is None:
                yield
                return
            with self._files.lock(what):
                self._take_in()
                yield

    def _make(self, change: Change) -> None:
        """Make a change: first in the journal, then in the rows and the index."""
        before, after, index = self._rows, self._rows.after(change), self._index
        if self._files is not None:
            journal, start = self._files.journal(self._generation), self._journaled
            self._journaled = journal.append(change.arrays())
        try:
            self._rows = after  # before the index, whose keys have to be known
            if index is not None:  # an exact one is built when it is first searched
                put_rows(index, after, change.keys)
        except BaseException:
            self._rows = before
            if self._files is not None:
                journal.cut(start)
                self._journaled = start
            with suppress(ValueError, OSError):  # the first error is the one to know of
                if index is not None:
                    put_rows(index, before, change.keys)
            raise
        if self._files is not None and self._journaled > max(JOURNAL, self._files.size()):
            self.save(self._files.folder)

    def refresh(self) -> bool:
        """Take in what other processes have changed in the run folder; whether there was any."""
        if self._files is None:
            return False
        with self._changing:
            before = self._rows
            self._take_in()
            return self._rows is not before

    def _take_in(self) -> None:
        """Bring rows and index to what the run folder has."""
        assert self._files is not None
        if self._files.generation() != self._generation:
            fresh = Gallery.load(self._files.folder, self._device)
            for name in (*SETTINGS, "_rows", "_generation", "_journaled"):
                setattr(self, name, getattr(fresh, name))
            # an index of compressed vectors asks this gallery for its rows, not the fresh one
            below = without_reranking(fresh._index)
            self._index = below and self._with_full_vectors(below)
            return
        self._replay(shared=isinstance(without_reranking(self._index), MilvusIndex))

    def _replay(self, *, shared: bool) -> None:
        """Make the changes in the journal that came later. shared: the index has them already."""
        assert self._files is not None
        journal, rows, keys = self._files.journal(self._generation), self._rows, []
        for end, arrays in journal.read(self._journaled):
            change = Change.of_arrays(arrays, str(journal.file))
            rows, self._journaled = rows.after(change), end
            keys.append(change.keys)
        if keys:
            self._rows = rows
            if self._index is not None and not shared:
                put_rows(self._index, rows, np.unique(np.concatenate(keys)))

    def _last_change(self) -> NDArray[np.int64] | None:
        """The keys of the last change in the journal, the only one that an index may not have."""
        assert self._files is not None
        keys = None
        for _, arrays in self._files.journal(self._generation).read():
            keys = arrays["keys"]
        return keys

    def save(self, folder: Path) -> None:
        """Write rows and index to a run folder, with what its journal has; the journal begins anew.

        A gallery that was not loaded from there takes the place of the one that is there.
        """
        files = GalleryFiles(folder)
        with self._changing, files.lock("saving the gallery"):
            loaded_here = self._files is not None and self._files.folder == folder
            if loaded_here and files.generation() is not None:
                self._take_in()
            generation, index = new_generation(), without_reranking(self._index)
            address: dict[str, str] = {}
            if isinstance(index, MilvusIndex):
                index.wait_until_indexed()
                address = index.address(folder)
            elif self.backend == "exact":
                address = {} if self.precision == "float32" else {"precision": self.precision}
            elif self.backend == "faiss":
                address = {"file": files.faiss_name(generation)}
                self.index.save(folder / address["file"])
            if self.rerank != "none":
                address = {**address, "rerank": self.rerank}
            files.commit(Snapshot(self._rows, generation, self.backend, address))
            self._files, self._generation, self._journaled = files, generation, 0
            files.clean(generation)
            if isinstance(index, MilvusIndex):
                index.finish_publish()

    @staticmethod
    def load(
        folder: Path, device: str | torch.device = "cpu", *, with_index: bool = True
    ) -> Gallery:
        """The gallery in a run folder. with_index: False: only the rows, to build another index."""
        files = GalleryFiles(folder)
        for _ in range(ATTEMPTS):
            read = files.read()
            try:
                gallery = Gallery._opened(files, read, device, with_index=with_index)
            except ValueError:
                if files.generation() == read.generation:
                    raise
                continue
            # another process may have put a new gallery there, and removed what was being read
            if files.generation() == read.generation:
                return gallery
        raise ValueError(f"{folder}: expected a gallery, got one that changes all the time")

    @staticmethod
    def _opened(
        files: GalleryFiles, read: Snapshot, device: str | torch.device, *, with_index: bool
    ) -> Gallery:
        gallery = Gallery(read.rows.table, device=device, backend=read.backend)
        gallery._rows, gallery._files = read.rows, files
        gallery._generation, gallery.address = read.generation, read.address
        gallery.precision = read.address.get("precision", "float32")
        check_precision({"precision": gallery.precision})
        gallery.rerank = checks.choice("rerank", read.address.get("rerank", "none"), RERANKINGS)
        checks.lookup("index", read.backend, INDEXES)
        if read.backend == "faiss" and with_index:
            index = FaissIndex.load(files.folder / read.address["file"])
            check_size(index, read, files)
            gallery._index = gallery._with_full_vectors(index)
        gallery._replay(shared=False)
        if read.backend == "milvus" and with_index:
            gallery._index = gallery._with_full_vectors(_opened_milvus(files, read, gallery))
        return gallery


def _opened_milvus(files: GalleryFiles, read: Snapshot, gallery: Gallery) -> MilvusIndex:
    """The collection of a gallery, with the rows that the gallery has.

    A process that was killed, or a database that lost its last seconds, may have left other rows:
    those of the last changes, or another number of them. The gallery's own are put there.
    """
    rows = gallery._rows
    if not read.generation:  # from before there were generations
        old = MilvusIndex.load(files.folder / read.address["file"])
        check_size(old, read, files)
        return old.pinned()
    try:
        index = MilvusIndex.at(read.address, files.folder, where=str(files.file))
    except ValueError:
        database = files.folder / read.address["milvus"]
        if "://" in read.address["milvus"] or not database.exists():
            raise
        return _repaired_milvus(files, read, gallery)
    last = gallery._last_change()
    if len(index) == len(rows.table) and (last is None or has_rows(index, rows, last)):
        if last is None:
            index.finish_publish()
        return index
    with files.lock("repairing the index"):  # a change by another process has ended now
        gallery._replay(shared=True)
        rows = gallery._rows
        there, times = np.unique(index.all_ids(), return_counts=True)
        if (times > 1).any():  # milvus-lite, killed while it flushes, has rows twice
            index.delete(there[times > 1])
        wrong = np.union1d(np.setxor1d(there, rows.keys), there[times > 1])
        last = gallery._last_change()
        put_rows(index, rows, wrong if last is None else np.union1d(wrong, last))
    return index


def _repaired_milvus(files: GalleryFiles, read: Snapshot, gallery: Gallery) -> MilvusIndex:
    """Another collection with the rows of the gallery, in the place of one that is damaged."""
    with files.lock("repairing the index"):
        gallery._replay(shared=True)
        rows, dim = gallery._rows, gallery.table.dim
        index = MilvusIndex.beside_damaged(read.address, files.folder, dim)
        put_rows(index, rows, rows.keys)
        index.wait_until_indexed()
        generation, address = new_generation(), {**read.address, **index.address(files.folder)}
        files.commit(Snapshot(rows, generation, read.backend, address))
        files.clean(generation)
        index.publish(drop_old=True)
        index.close()
    return index  # `load` sees that there is another generation, and reads that


def _neighbor(table: EmbeddingTable, row: int, cosine: float) -> Neighbor:
    label = -1 if table.labels is None else int(table.labels[row])
    return Neighbor(
        row,
        table.ids[row],
        (table.paths[row] or None) if table.paths else None,
        table.class_name(label) if label >= 0 else "",
        label,
        cosine,
        None,
    )


def _new_rows(
    vectors: NDArray[Any],
    names: Sequence[str] | None,
    paths: Sequence[str | None],
    ids: Sequence[str] | None = None,
) -> EmbeddingTable:
    """Rows to add to a table, or the first ones."""
    classes = tuple(dict.fromkeys(names or ()))
    return EmbeddingTable(
        vectors,
        None if names is None else np.array([classes.index(name) for name in names]),
        tuple(unique_names(ids or (Path(p).name if p else "added" for p in paths))),
        tuple(path or "" for path in paths) if any(paths) else None,
        class_names=None if names is None else classes,
    )
