"""The rows of a gallery, and the changes to them: add, remove, relabel.

Rows are never changed in place: a change makes new ones, and a search goes on with those that it
began with. Each row has a key, its id in the index. Keys increase from row to row and are never
given twice, so that a row keeps its key when others before it are removed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinspace._table_files import table_of
from kinspace.embeddings import EmbeddingTable

__all__ = ["Change", "GalleryRows"]

FORMAT = 1  # of a change in a journal
KINDS = ("add", "remove", "relabel")


@dataclass(frozen=True, eq=False)
class Change:
    """A change of some rows.

    kind: "add", "remove" or "relabel". keys: of the rows. table: the rows to add. class_name: the
    new class of rows that are relabeled.
    """

    kind: str
    keys: NDArray[np.int64]
    table: EmbeddingTable | None = None
    class_name: str | None = None

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The change as arrays, for a journal."""
        words = {"format": FORMAT, "kind": self.kind, "class_name": self.class_name}
        text = np.frombuffer(json.dumps(words).encode(), np.uint8)
        found: dict[str, NDArray[Any]] = {"change": text, "keys": self.keys}
        return found if self.table is None else found | self.table.arrays()

    @staticmethod
    def of_arrays(arrays: Mapping[str, NDArray[Any]], where: str) -> Change:
        """The change that `arrays` gave."""
        try:
            words = json.loads(bytes(arrays["change"]).decode())
            if words["format"] != FORMAT or words["kind"] not in KINDS:
                raise ValueError(f"format {words['format']}, {words['kind']!r}")
            table = table_of(arrays) if words["kind"] == "add" else None
            return Change(words["kind"], arrays["keys"], table, words["class_name"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{where}: expected a change of a gallery of format {FORMAT}, got {error}; open "
                "it with the kinspace that wrote it"
            ) from None


@dataclass(frozen=True, eq=False)
class GalleryRows:
    """A table and the key of each row. next_key: of the next row that is added.

    >>> table = EmbeddingTable(np.eye(3), ids=("a", "b", "c"))
    >>> rows = GalleryRows.of(table).after(Change("remove", np.array([1])))
    >>> rows.table.ids, rows.keys.tolist(), rows.rows_of(np.array([2, 1])).tolist()
    (('a', 'c'), [0, 2], [1, -1])
    """

    table: EmbeddingTable
    keys: NDArray[np.int64]
    next_key: int

    @staticmethod
    def of(table: EmbeddingTable) -> GalleryRows:
        """The rows of a new gallery."""
        return GalleryRows(table, np.arange(len(table)), len(table))

    def after(self, change: Change) -> GalleryRows:
        """The rows after a change; a ValueError if it cannot be made."""
        if change.kind == "add":
            assert change.table is not None
            before, more = self.table, change.table
            if before.paths is None and more.paths is not None:  # the first rows with files
                before = replace(before, paths=("",) * len(before))
            table = EmbeddingTable.concat([before, more])
            keys = np.concatenate([self.keys, change.keys])
            return GalleryRows(table, keys, int(keys[-1]) + 1)
        chosen = np.isin(self.keys, change.keys)
        if change.kind == "remove":
            if chosen.all():
                raise ValueError(
                    "remove: expected at least one picture to stay, got all of the gallery; "
                    "make another gallery with: kinspace index"
                )
            return GalleryRows(self.table.select(~chosen), self.keys[~chosen], self.next_key)
        return replace(self, table=_relabeled(self.table, chosen, str(change.class_name)))

    def rows_of(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """The row of each key; -1 for one that is not there."""
        places = np.searchsorted(self.keys, keys)
        found = self.keys[np.minimum(places, len(self.keys) - 1)] == keys
        return np.where(found, places, -1)

    def vectors_of(self, keys: NDArray[np.int64]) -> NDArray[Any]:
        """The vectors of keys; zeros for one that is not there."""
        rows = self.rows_of(keys)
        vectors: NDArray[Any] = self.table.vectors[rows]
        return np.where(rows[:, None] >= 0, vectors, 0)

    @cached_property
    def row_of_id(self) -> dict[str, int]:
        """The row of each id of the table."""
        return {name: row for row, name in enumerate(self.table.ids)}

    @cached_property
    def class_sizes(self) -> NDArray[np.int64]:
        """Pictures of each class, (classes,); a ValueError for rows without classes."""
        if self.table.labels is None:
            raise ValueError("classify: expected a gallery with classes, got one without")
        return np.bincount(self.table.labels, minlength=len(self.table.class_names or ()))


def _relabeled(table: EmbeddingTable, chosen: NDArray[np.bool_], name: str) -> EmbeddingTable:
    if table.labels is None or table.class_names is None:
        raise ValueError("relabel: expected a gallery with class names, got one without")
    names = table.class_names
    if name not in names:
        names = (*names, name)
    labels = table.labels.copy()
    labels[chosen] = names.index(name)
    return replace(table, labels=labels, class_names=names)
