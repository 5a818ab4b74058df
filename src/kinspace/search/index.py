"""What all indexes share: their interface, the columns beside the vectors, checks and a file.

Vectors with ids are added, the nearest are found. `Columns` holds ids, labels and attributes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kinspace._core import checks
from kinspace._core.atomic_files import DAMAGED_NPZ, write_atomically
from kinspace.evaluation.similarity import Space, Vectors, vectors_of

__all__ = [
    "Columns",
    "Index",
    "SearchResult",
    "Where",
    "allowed_values",
    "check_ids",
    "check_rows",
    "empty_result",
    "read_arrays",
    "recall_against_exact",
    "unit_vectors",
    "write_arrays",
]

Value = bool | int | float | str
Where = Mapping[str, Value | Sequence[Value]]
SearchResult = tuple[NDArray[np.int64], NDArray[np.float32]]
NO_LABEL = -1
_PREFIX = "attribute "  # of the names of attributes in a file


class Index(Protocol):
    """Vectors with ids, searched by cosine similarity.

    An id is a non-negative integer, such as a row of an EmbeddingTable. A filter (`where`) lists
    the allowed values: {"label": [3, 5], "striped": True} selects what matches every entry.
    """

    @property
    def dim(self) -> int:
        """Length of the vectors."""

    def add(
        self,
        vectors: Vectors,
        ids: Any,
        labels: Any = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> None:
        """Put vectors in, or others in the place of those with the same ids.

        labels: one integer per vector. attributes: by name, one value per vector.
        """

    def search(self, queries: Vectors, k: int, *, where: Where | None = None) -> SearchResult:
        """Ids and cosines of the k nearest of each query, both (queries, k), nearest first.

        If there are fewer, or an approximate search finds fewer, the rest is -1 and -inf.
        """

    def delete(self, ids: Any) -> int:
        """Remove vectors; returns how many of the ids were in the index."""

    def save(self, file: str | Path) -> None:
        """Write a file for `load` of the same class."""

    def __len__(self) -> int:
        """The number of vectors."""


def empty_result(queries: int, k: int) -> SearchResult:
    """Ids and cosines of a search that finds nothing, to be filled in.

    >>> empty_result(1, 2)
    (array([[-1, -1]]), array([[-inf, -inf]], dtype=float32))
    """
    return np.full((queries, k), -1, np.int64), np.full((queries, k), -np.inf, np.float32)


def recall_against_exact(index: Index, exact: Index, queries: Vectors, k: int = 10) -> float:
    """The share of the true k nearest that an approximate index finds, over all queries.

    >>> from kinspace.search.exact import ExactIndex
    >>> whole, part = ExactIndex(2), ExactIndex(2)
    >>> whole.add(np.eye(2), [0, 1])
    >>> part.add(np.eye(2)[:1], [0])
    >>> recall_against_exact(part, whole, np.eye(2), 2)
    0.5
    """
    checks.integer("k", k, at_least=1)
    truth, found = exact.search(queries, k)[0], index.search(queries, k)[0]
    if not (truth >= 0).any():
        raise ValueError("exact: expected an index with vectors in it, got none")
    hits = (truth[:, :, None] == found[:, None, :]).any(2) & (truth >= 0)
    return float(hits.sum() / (truth >= 0).sum())


@dataclass(frozen=True, eq=False)
class Columns:
    """Ids, labels and attributes, one row per vector.

    >>> rows = Columns.checked([4, 5], 2, labels=[0, 1], attributes={"color": ["red", "blue"]})
    >>> rows.allowed({"label": [0, 1], "color": "blue"})
    array([False,  True])
    """

    ids: NDArray[np.int64]
    labels: NDArray[np.int64]
    attributes: dict[str, NDArray[Any]] = field(default_factory=dict)

    @staticmethod
    def checked(
        ids: Any, count: int, labels: Any = None, attributes: Mapping[str, Any] | None = None
    ) -> Columns:
        """Columns of `count` rows; raises a ValueError if they are invalid."""
        checked_ids = check_ids("ids", ids, count)
        if len(np.unique(checked_ids)) != count:
            raise ValueError("ids: expected a different number for each vector, got one twice")
        if labels is None:
            checked_labels = np.full(count, NO_LABEL)
        else:
            checked_labels = check_ids("labels", labels, count, at_least=NO_LABEL)
        columns = {name: _column(name, value, count) for name, value in (attributes or {}).items()}
        return Columns(checked_ids, checked_labels, columns)

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, rows: NDArray[Any]) -> Columns:
        """Some rows, by index or mask."""
        return Columns(
            self.ids[rows],
            self.labels[rows],
            {name: column[rows] for name, column in self.attributes.items()},
        )

    def check_appendable(self, others: Columns) -> None:
        """Raise a ValueError if the others, to be appended, have other attributes."""
        if len(self) and set(self.attributes) != set(others.attributes):
            raise ValueError(
                f"attributes: expected {sorted(self.attributes)}, as for earlier vectors, "
                f"got {sorted(others.attributes)}"
            )

    def append(self, others: Columns) -> Columns:
        """These rows followed by others."""
        if not len(self):
            return others
        self.check_appendable(others)
        return Columns(
            np.concatenate([self.ids, others.ids]),
            np.concatenate([self.labels, others.labels]),
            {n: np.concatenate([c, others.attributes[n]]) for n, c in self.attributes.items()},
        )

    def allowed(self, where: Where) -> NDArray[np.bool_]:
        """Mask of the rows that match every entry of a filter."""
        columns = {"label": self.labels, **self.attributes}
        matches = np.ones(len(self), bool)
        for name, values in where.items():
            column = checks.lookup("attribute", name, columns)
            # numpy would compare numbers with strings as strings
            is_text = column.dtype.kind == "U"
            values = [v for v in allowed_values(values) if isinstance(v, str) == is_text]
            matches &= np.isin(column, values)
        return matches

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Arrays by name, for `write_arrays`."""
        named = {_PREFIX + name: column for name, column in self.attributes.items()}
        return {"ids": self.ids, "labels": self.labels, **named}

    @staticmethod
    def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> Columns:
        """The columns that `arrays` returned."""
        named = {
            name.removeprefix(_PREFIX): column
            for name, column in arrays.items()
            if name.startswith(_PREFIX)
        }
        return Columns.checked(arrays["ids"], len(arrays["ids"]), arrays["labels"], named)


def check_rows(
    dim: int,
    vectors: Vectors,
    ids: Any,
    labels: Any = None,
    attributes: Mapping[str, Any] | None = None,
    *,
    device: str | torch.device = "cpu",
) -> tuple[Tensor, Columns]:
    """The inputs of `Index.add`, checked: vectors of length 1 and their columns.

    >>> check_rows(2, np.eye(2), [4])
    Traceback (most recent call last):
    ValueError: ids: expected 2 integers, one per vector, got int64 (1,)
    """
    rows = unit_vectors(vectors, dim, device)
    return rows, Columns.checked(ids, len(rows), labels, attributes)


def unit_vectors(
    value: Vectors, dim: int, device: str | torch.device = "cpu", *, name: str = "vectors"
) -> Tensor:
    """Vectors divided by their length, in float32; a zero vector stays zero.

    Lengths are computed in float64, so that no float32 vector over- or underflows.

    >>> unit_vectors(np.array([[3.0, 4.0]]), 2)
    tensor([[0.6000, 0.8000]])
    """
    tensor = vectors_of(value, device=device, name=name)
    if tensor.shape[1] != dim:
        raise ValueError(
            f"{name}: expected {dim} columns, the dim of the index, got {tensor.shape[1]}"
        )
    return Space("cosine", tensor[:1]).rows(tensor).fast


def check_ids(
    name: str, value: Any, count: int | None = None, *, at_least: int = 0
) -> NDArray[np.int64]:
    """A vector of integers, of length `count` if given.

    >>> check_ids("ids", [3, -4], 2)
    Traceback (most recent call last):
    ValueError: ids: expected 0 or more, got -4
    """
    array = np.asarray(value.cpu() if isinstance(value, Tensor) else value)
    if not array.size:
        array = array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu" or (count or len(array)) != len(array):
        many = "" if count is None else f"{count} "
        raise ValueError(
            f"{name}: expected {many}integers, one per vector, got {array.dtype} {array.shape}"
        )
    if array.size and array.min() < at_least:
        raise ValueError(f"{name}: expected {at_least} or more, got {array.min()}")
    return array.astype(np.int64)


def allowed_values(values: Any) -> list[Any]:
    """The values of an entry of a filter, which is a value or a sequence of values.

    >>> allowed_values("red"), allowed_values(np.array([3, 5]))
    (['red'], [3, 5])
    """
    single = isinstance(values, str) or not isinstance(values, (Sequence, np.ndarray))
    each = [values] if single else list(values)
    return [value.item() if isinstance(value, np.generic) else value for value in each]


def _column(name: str, value: Any, count: int) -> NDArray[Any]:
    array = np.asarray(value.cpu() if isinstance(value, Tensor) else value)
    if array.shape != (count,) or array.dtype.kind not in "biufU":
        raise ValueError(
            f"attribute {name!r}: expected {count} numbers or strings, one per vector, "
            f"got {array.dtype} {array.shape}"
        )
    if name == "label":
        raise ValueError("attributes: expected another name than 'label', use the argument labels")
    return array


def write_arrays(file: str | Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays by name to a .npz file; a reader sees the old file or the new one.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_arrays(f"{folder}/a.npz", {"ids": np.arange(2)})
    ...     read_arrays(f"{folder}/a.npz", ["ids"])
    {'ids': array([0, 1])}
    """

    def write(part: Path) -> None:
        with part.open("wb") as out:  # savez would add .npz to the name
            np.savez(out, **arrays)  # type: ignore[arg-type]

    write_atomically(Path(file), write)


def read_arrays(file: str | Path, needed: Sequence[str]) -> dict[str, NDArray[Any]]:
    """The arrays of a file by `write_arrays`; raises a ValueError if one of `needed` is missing."""
    try:
        # opened here: numpy does not close a broken archive
        with Path(file).open("rb") as stream, np.load(stream, allow_pickle=False) as found:
            arrays = {name: found[name] for name in found.files}
    except FileNotFoundError:
        raise ValueError(f"{file}: expected a saved index, got no such file") from None
    except DAMAGED_NPZ as error:
        raise ValueError(
            f"{file}: expected a saved index, got another file: {checks.brief(error)}"
        ) from None
    if missing := [name for name in needed if name not in arrays]:
        raise ValueError(f"{file}: expected a saved index, got one without {', '.join(missing)}")
    return arrays
