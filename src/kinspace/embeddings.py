"""Embeddings with their classes, ids and files: what evaluation, search and reports take.

A table is written as .npz, arrays alone and never pickled objects. Vectors that something else made
are read from .npz, .npy with a CSV beside it, .safetensors and .parquet (`EmbeddingTable.load`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from kinspace.data.pictures import FilePictures, Pictures, PictureSubset

if TYPE_CHECKING:
    from kinspace.data.dataset import Dataset

__all__ = ["EmbeddingTable", "picture_ids", "unique_names"]

FORMAT = 1


@dataclass(frozen=True, eq=False, repr=False)  # arrays have no single answer to ==
class EmbeddingTable:
    """One row for each picture: its vector, class, name, file and attributes.

    vectors: (rows, dim), an array or a tensor, kept as a float32 or float64 array. labels: whole
    numbers from 0 on; with class_names, places in them. ids: a name of its own for each row, by
    default "0", "1", ... attributes: (rows, len(attribute_names)), in 0 .. 1.

    ids are names within the data set, the path below its folder for files: they stay the same when
    the folder moves, and pictures that have moved are found by them where the data set is given.
    paths are absolute, where the files were when they were embedded: a report of the table finds
    the pictures from any working directory. "" is a row without a file; None: no row has one.

    >>> table = EmbeddingTable(np.eye(3), labels=[0, 1, 1], class_names=("io", "luna"))
    >>> len(table), table.dim, table.ids
    (3, 3, ('0', '1', '2'))
    >>> table
    <EmbeddingTable: 3 x 3, 2 classes>
    >>> table.select(table.labels == 1).labels
    array([1, 1])
    """

    vectors: NDArray[Any]
    labels: NDArray[np.int64] | None = None
    ids: tuple[str, ...] = ()
    paths: tuple[str, ...] | None = None
    attributes: NDArray[np.float32] | None = None
    attribute_names: tuple[str, ...] = ()
    class_names: tuple[str, ...] | None = None

    def __repr__(self) -> str:
        """One line, without the numbers."""
        words = [f"{len(self):,} x {self.dim:,}"]
        if self.labels is not None:
            words.append(f"{len(np.unique(self.labels)):,} classes")
        if self.attributes is not None:
            words.append(f"{len(self.attribute_names)} attributes")
        return f"<EmbeddingTable: {', '.join(words)}>"

    def __post_init__(self) -> None:
        vectors = _vectors(self.vectors)
        count = len(vectors)
        put = object.__setattr__  # frozen: only here are the fields brought into form
        put(self, "vectors", vectors)
        put(self, "ids", tuple(map(str, self.ids)) or tuple(map(str, range(count))))
        if self.labels is not None:
            put(self, "labels", _labels(self.labels, self.class_names))
        if self.paths is not None:
            put(self, "paths", tuple(map(str, self.paths)))
        put(self, "attribute_names", tuple(self.attribute_names))
        if self.attributes is not None:
            put(self, "attributes", _attributes(self.attributes, self.attribute_names))
        for name in ("labels", "ids", "paths", "attributes"):
            value = getattr(self, name)
            if value is not None and len(value) != count:
                raise ValueError(f"{name}: expected {count}, one for each vector, got {len(value)}")
        if len(set(self.ids)) != count:
            twice = next(name for name in self.ids if self.ids.count(name) > 1)
            raise ValueError(f"ids: expected a name of its own for each row, got {twice!r} twice")

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def dim(self) -> int:
        """The number of dimensions."""
        return int(self.vectors.shape[1])

    def class_name(self, label: int) -> str:
        """The name of a class, its number where there are no names."""
        return str(label) if self.class_names is None else self.class_names[label]

    def select(self, rows: ArrayLike) -> EmbeddingTable:
        """The rows at these places, or where a mask is true; classes keep their numbers."""
        places = np.asarray(rows)
        places = np.flatnonzero(places) if places.dtype == bool else places.astype(np.int64)
        chosen = places.tolist()
        return replace(
            self,
            vectors=self.vectors[places],
            labels=None if self.labels is None else self.labels[places],
            ids=tuple(self.ids[i] for i in chosen),
            paths=self.paths and tuple(self.paths[i] for i in chosen),
            attributes=None if self.attributes is None else self.attributes[places],
        )

    def truncated(self, dim: int) -> EmbeddingTable:
        """The first `dim` numbers of each vector, at length 1: for an embedding trained for it.

        >>> EmbeddingTable(np.array([[3.0, 4.0, 12.0]])).truncated(2).vectors
        array([[0.6, 0.8]])
        """
        if not 1 <= dim <= self.dim:
            raise ValueError(f"truncate_dim: expected 1 to {self.dim}, got {dim}")
        vectors = self.vectors[:, :dim]
        lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
        unit = vectors / np.where(lengths > 0, lengths, 1)
        return replace(self, vectors=unit.astype(self.vectors.dtype))

    @staticmethod
    def from_dataset(
        dataset: Dataset, vectors: ArrayLike | Tensor, *, whole: Dataset | None = None
    ) -> EmbeddingTable:
        """The vectors of a data set, with its labels, names and attributes.

        whole: the data set this one is a part of. An id is then unique among all of its pictures.

        >>> from kinspace.data import digits_dataset
        >>> EmbeddingTable.from_dataset(digits_dataset().subset([3, 4]), np.eye(2)).ids
        ('digit 3', 'digit 4')
        """
        if whole is None:
            ids = picture_ids(dataset.pictures)
        else:
            of_whole = picture_ids(whole.pictures)
            ids = [of_whole[place] for place in dataset.indices_in(whole).tolist()]
        attributes = dataset.attributes
        return EmbeddingTable(
            vectors,  # type: ignore[arg-type]  # brought into form in __post_init__
            dataset.labels.numpy() if dataset.labeled else None,
            tuple(ids),
            _paths(dataset.pictures),
            None if attributes is None else attributes.values.numpy(),
            () if attributes is None else attributes.names,
            dataset.class_names if dataset.labeled else None,
        )

    @staticmethod
    def concat(tables: Sequence[EmbeddingTable]) -> EmbeddingTable:
        """All rows of several tables; the same class name is the same class.

        Without class names equal labels are the same class. ids must differ.

        >>> a = EmbeddingTable(np.zeros((1, 2)), [0], ids=("a",), class_names=("io",))
        >>> b = EmbeddingTable(np.ones((1, 2)), [0], ids=("b",), class_names=("luna",))
        >>> EmbeddingTable.concat([a, b]).labels
        array([0, 1])
        """
        if not tables:
            raise ValueError("concat: expected at least one table, got none")
        first = tables[0]
        for name in ("dim", "attribute_names"):
            if len({getattr(table, name) for table in tables}) > 1:
                got = [getattr(table, name) for table in tables]
                raise ValueError(f"concat: expected tables of one {name}, got {got}")
        for name in ("labels", "paths", "attributes", "class_names"):
            if len({getattr(table, name) is None for table in tables}) > 1:
                raise ValueError(f"concat: expected {name} in all tables or in none")
        labels, names = _joined_labels(tables)
        return EmbeddingTable(
            np.concatenate([table.vectors for table in tables]),
            labels,
            tuple(name for table in tables for name in table.ids),
            first.paths and tuple(path for table in tables for path in table.paths or ()),
            None
            if first.attributes is None
            else np.concatenate([table.attributes for table in tables]),  # type: ignore[misc]
            first.attribute_names,
            names,
        )

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The table as arrays by name, none of them of objects; `save` writes them."""
        words = {
            "format": FORMAT,
            "ids": self.ids,
            "paths": self.paths,
            "attribute_names": self.attribute_names,
            "class_names": self.class_names,
        }
        text = np.frombuffer(json.dumps(words).encode(), dtype=np.uint8)
        arrays: dict[str, Any] = {"vectors": self.vectors, "table": text}
        arrays |= {} if self.labels is None else {"labels": self.labels}
        return arrays | ({} if self.attributes is None else {"attributes": self.attributes})

    def save(self, file: str | Path) -> None:
        """Write the table, by the file's ending.

        .npz: all of it, for `load`. .npy: the vectors, with the other columns in a CSV of the same
        name. .parquet: a column of lists, and the other columns (extra `parquet`). .tsv: vectors,
        and NAME-metadata.tsv beside them, for TensorBoard's projector.
        """
        from kinspace._table_writers import write_table

        write_table(self, Path(file))

    def to_fiftyone(self, name: str | None = None) -> Any:
        """A data set of FiftyOne with the vectors in the field `embedding` (extra `fiftyone`).

        name: of a new data set; None: FiftyOne makes one up. Each row needs a file (`paths`).
        Classes are in `ground_truth`, ids in `kinspace_id`, attributes in `attributes`. FiftyOne
        forgets the data set when its database stops, unless it is made `persistent`.

        >>> EmbeddingTable(np.eye(3)).to_fiftyone()
        Traceback (most recent call last):
        ValueError: to_fiftyone: expected a file for each row (paths), got rows without one
        """
        from kinspace._table_writers import to_fiftyone

        return to_fiftyone(self, name)

    @staticmethod
    def load(file: str | Path) -> EmbeddingTable:
        """Read a table: one of ours, or vectors from elsewhere, by the file's ending.

        .npz, .safetensors: arrays named vectors (or embeddings, features, or the only matrix) and
        labels, if there are any. .npy: the vectors, with a CSV of the same name beside it for the
        columns label, id, path and attributes. .parquet: a column of lists of numbers and the same
        columns.
        """
        from kinspace._table_files import read_table

        return read_table(Path(file))


def picture_ids(pictures: Pictures) -> list[str]:
    """The ids of pictures in a table: their names, numbered where several have the same.

    >>> picture_ids(FilePictures([Path("a.jpg"), Path("b.jpg"), Path("a.jpg")]))
    ['a.jpg', 'b.jpg', 'a.jpg #2']
    """
    return unique_names(pictures.name(place) for place in range(len(pictures)))


def unique_names(names: Iterable[str], taken: Iterable[str] = ()) -> list[str]:
    """Unique names: one that is taken already is numbered, from 2 on.

    >>> unique_names(["io", "luna", "io"], taken=["luna"])
    ['io', 'luna #2', 'io #2']
    """
    used, last = set(taken), dict[str, int]()
    found = []
    for name in names:
        unique = name
        while unique in used:
            last[name] = last.get(name, 1) + 1
            unique = f"{name} #{last[name]}"
        used.add(unique)
        found.append(unique)
    return found


def _paths(pictures: Pictures) -> tuple[str, ...] | None:
    """The absolute paths of pictures that are files of their own."""
    places: Sequence[int] = range(len(pictures))
    while isinstance(pictures, PictureSubset):
        places = [pictures.indices[place] for place in places]
        pictures = pictures.whole
    if not isinstance(pictures, FilePictures):
        return None
    return tuple(str(pictures.path(place).absolute()) for place in places)


def _vectors(value: Any) -> NDArray[Any]:
    array = value.detach().cpu().float().numpy() if _half(value) else np.asarray(_host(value))
    if array.dtype.kind not in "fiu" or array.ndim != 2:
        raise ValueError(
            f"vectors: expected a matrix of numbers (rows, dim), got {array.dtype} {array.shape}"
        )
    if 0 in array.shape:
        raise ValueError(
            f"vectors: expected at least one row and one column, got shape {array.shape}"
        )
    return np.ascontiguousarray(array, None if array.dtype == np.float64 else np.float32)


def _half(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and value.element_size() == 2


def _host(value: Any) -> Any:
    return value.detach().cpu().numpy() if isinstance(value, Tensor) else value


def _labels(value: Any, class_names: Sequence[str] | None) -> NDArray[np.int64]:
    array = np.asarray(_host(value))
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError(f"labels: expected a row of integers, got {array.dtype} {array.shape}")
    low, high = int(array.min(initial=0)), int(array.max(initial=0))
    if low < 0 or (class_names is not None and high >= len(class_names)):
        allowed = "0 or more" if class_names is None else f"0 to {len(class_names) - 1}"
        raise ValueError(f"labels: expected {allowed}, got {low if low < 0 else high}")
    return array.astype(np.int64)


def _attributes(value: Any, names: Sequence[str]) -> NDArray[np.float32]:
    array = np.asarray(_host(value), np.float32)
    if array.ndim != 2 or array.shape[1] != len(names):
        raise ValueError(
            f"attributes: expected one column for each of {len(names)} attribute_names, "
            f"got shape {array.shape}"
        )
    return array


def _joined_labels(
    tables: Sequence[EmbeddingTable],
) -> tuple[NDArray[np.int64] | None, tuple[str, ...] | None]:
    if any(table.labels is None for table in tables):
        return None, tables[0].class_names
    if tables[0].class_names is None:
        return np.concatenate([table.labels for table in tables]), None  # type: ignore[misc]
    names = tuple(dict.fromkeys(name for table in tables for name in table.class_names or ()))
    number = {name: i for i, name in enumerate(names)}
    parts = []
    for table in tables:
        places = np.array([number[name] for name in table.class_names or ()], np.int64)
        parts.append(places[table.labels])
    return np.concatenate(parts), names
