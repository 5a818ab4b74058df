"""The rows of an index: a vector each, its number, label and attributes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kinspace._core import checks
from kinspace.evaluation.metric_inputs import Vectors, vectors_of
from kinspace.evaluation.similarity import Space
from kinspace.search.index import Where

__all__ = ["Columns", "checked_rows", "numbers", "unit_vectors", "wanted"]

NO_LABEL = -1
_ATTRIBUTE = "attribute "  # before its name, in a file


@dataclass(frozen=True, eq=False)
class Columns:
    """A row for each vector.

    >>> rows = Columns.of([4, 5], 2, labels=[0, 1], attributes={"color": ["red", "blue"]})
    >>> rows.allowed({"label": [0, 1], "color": "blue"})
    array([False,  True])
    """

    ids: NDArray[np.int64]
    labels: NDArray[np.int64]
    attributes: dict[str, NDArray[Any]] = field(default_factory=dict)

    @staticmethod
    def of(
        ids: Any, count: int, labels: Any = None, attributes: Mapping[str, Any] | None = None
    ) -> Columns:
        """Checked columns of `count` rows."""
        own = numbers("ids", ids, count)
        if len(np.unique(own)) != count:
            raise ValueError("ids: expected a number of its own for each vector, got one twice")
        known = (
            np.full(count, NO_LABEL) if labels is None else numbers("labels", labels, count, low=-1)
        )
        columns = {name: _column(name, value, count) for name, value in (attributes or {}).items()}
        return Columns(own, known, columns)

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, rows: NDArray[Any]) -> Columns:
        """Some rows, by place or mask."""
        return Columns(
            self.ids[rows],
            self.labels[rows],
            {name: column[rows] for name, column in self.attributes.items()},
        )

    def with_more(self, others: Columns) -> Columns:
        """These rows, then those."""
        if not len(self):
            return others
        if set(self.attributes) != set(others.attributes):
            raise ValueError(
                f"attributes: expected {sorted(self.attributes)}, those of the vectors before, "
                f"got {sorted(others.attributes)}"
            )
        return Columns(
            np.concatenate([self.ids, others.ids]),
            np.concatenate([self.labels, others.labels]),
            {n: np.concatenate([c, others.attributes[n]]) for n, c in self.attributes.items()},
        )

    def allowed(self, where: Where) -> NDArray[np.bool_]:
        """Which rows fit every entry of a filter."""
        known = {"label": self.labels, **self.attributes}
        fits = np.ones(len(self), bool)
        for name, values in where.items():
            column = checks.lookup("attribute", name, known)
            texts, wants = column.dtype.kind == "U", wanted(values)
            # numpy would compare numbers with words as words
            fits &= np.isin(column, [value for value in wants if isinstance(value, str) == texts])
        return fits

    def arrays(self) -> dict[str, NDArray[Any]]:
        """By name, for a file."""
        named = {_ATTRIBUTE + name: column for name, column in self.attributes.items()}
        return {"ids": self.ids, "labels": self.labels, **named}

    @staticmethod
    def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> Columns:
        """What `arrays` gave."""
        named = {
            name.removeprefix(_ATTRIBUTE): column
            for name, column in arrays.items()
            if name.startswith(_ATTRIBUTE)
        }
        return Columns.of(arrays["ids"], len(arrays["ids"]), arrays["labels"], named)


def checked_rows(
    dim: int,
    vectors: Vectors,
    ids: Any,
    labels: Any = None,
    attributes: Mapping[str, Any] | None = None,
    *,
    device: str | torch.device = "cpu",
) -> tuple[Tensor, Columns]:
    """What `Index.add` is given, checked: vectors of length 1, and what is known of each.

    >>> checked_rows(2, np.eye(2), [4])
    Traceback (most recent call last):
    ValueError: ids: expected 2 whole numbers, one a vector, got int64 (1,)
    """
    rows = unit_vectors(vectors, dim, device)
    return rows, Columns.of(ids, len(rows), labels, attributes)


def unit_vectors(
    value: Vectors, dim: int, device: str | torch.device = "cpu", *, name: str = "vectors"
) -> Tensor:
    """Checked vectors of length 1 in float32; a zero vector stays zero.

    Lengths are taken in float64: no vector of float32 is too long or too short.

    >>> unit_vectors(np.array([[3.0, 4.0]]), 2)
    tensor([[0.6000, 0.8000]])
    """
    tensor = vectors_of(value, device=device, name=name)
    if tensor.shape[1] != dim:
        raise ValueError(
            f"{name}: expected {dim} columns, as many as the index has, got {tensor.shape[1]}"
        )
    return Space("cosine", tensor[:1]).rows(tensor).fast


def numbers(name: str, value: Any, count: int | None = None, *, low: int = 0) -> NDArray[np.int64]:
    """Whole numbers, one each.

    >>> numbers("ids", [3, -4], 2)
    Traceback (most recent call last):
    ValueError: ids: expected 0 or more, got -4
    """
    array = np.asarray(value.cpu() if isinstance(value, Tensor) else value)
    if not array.size:
        array = array.astype(np.int64)
    if array.ndim != 1 or array.dtype.kind not in "iu" or (count or len(array)) != len(array):
        many = "" if count is None else f"{count} "
        raise ValueError(
            f"{name}: expected {many}whole numbers, one a vector, got {array.dtype} {array.shape}"
        )
    if array.size and array.min() < low:
        raise ValueError(f"{name}: expected {low} or more, got {array.min()}")
    return array.astype(np.int64)


def wanted(values: Any) -> list[Any]:
    """The values a filter's entry takes: one, or a sequence of them.

    >>> wanted("red"), wanted(np.array([3, 5]))
    (['red'], [3, 5])
    """
    alone = isinstance(values, str) or not isinstance(values, (Sequence, np.ndarray))
    found = [values] if alone else list(values)
    return [value.item() if isinstance(value, np.generic) else value for value in found]


def _column(name: str, value: Any, count: int) -> NDArray[Any]:
    array = np.asarray(value.cpu() if isinstance(value, Tensor) else value)
    if array.shape != (count,) or array.dtype.kind not in "biufU":
        raise ValueError(
            f"attribute {name!r}: expected {count} numbers or words, one a vector, "
            f"got {array.dtype} {array.shape}"
        )
    if name == "label":
        raise ValueError("attributes: expected another name than 'label', which has its own place")
    return array
