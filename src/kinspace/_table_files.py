"""Files of embeddings, ours and others', read into an EmbeddingTable. Nothing is ever unpickled."""

from __future__ import annotations

import csv
import json
import zipfile
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from kinspace._core.atomic_files import DAMAGED_NPZ
from kinspace._core.checks import brief
from kinspace.embeddings import FORMAT, EmbeddingTable

__all__ = ["read_table", "table_of"]

VECTORS = ("vectors", "embeddings", "features", "X", "x")
LABELS = ("labels", "label", "targets", "y", "class")
IDS, PATHS = ("ids", "id"), ("paths", "path", "file")
PICKLED = "got pickled objects, which are not read; save it with a plain dtype"


def read_table(file: Path) -> EmbeddingTable:
    """The table in a file, by its ending; see `EmbeddingTable.load`."""
    if file.suffix.lower() not in READERS:
        near = get_close_matches(file.suffix.lower(), READERS, n=1)
        advice = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(
            f"{file}: expected embeddings in a file ending in {', '.join(READERS)}, "
            f"got {file.suffix!r}; {advice}save them as .npz: vectors and labels"
        )
    if not file.is_file():
        raise ValueError(f"{file}: expected a file of embeddings, got nothing there")
    try:
        return READERS[file.suffix.lower()](file)
    except (OSError, zipfile.BadZipFile, KeyError, UnicodeDecodeError, json.JSONDecodeError) as e:
        raise ValueError(
            f"{file}: expected a readable {file.suffix} file, got {brief(e)}"
        ) from None
    except ValueError as error:
        raise ValueError(f"{file}: {brief(error)}") from None


def _npz(file: Path) -> EmbeddingTable:
    # opened here: np.load leaves a file open that is cut short
    with file.open("rb") as stream, _loaded(stream, ".npz") as stored:
        arrays = {name: _array(stored, name) for name in stored.files}
    return table_of(arrays) if "table" in arrays else _from_arrays(arrays)


def table_of(arrays: Mapping[str, NDArray[Any]]) -> EmbeddingTable:
    """The table of `EmbeddingTable.arrays`; others beside them are not looked at."""
    words = json.loads(bytes(arrays["table"]).decode())
    if words.get("format") != FORMAT:
        raise ValueError(
            f"expected an embedding table of format {FORMAT}, got {words.get('format')}; "
            "read it with the kinspace that wrote it"
        )
    return EmbeddingTable(
        arrays["vectors"],
        arrays.get("labels"),
        tuple(words["ids"]),
        words["paths"],
        arrays.get("attributes"),
        tuple(words["attribute_names"]),
        None if words["class_names"] is None else tuple(words["class_names"]),
    )


def _loaded(stream: BinaryIO, suffix: str) -> Any:
    """What numpy has stored there: an array, or several by name."""
    kinds = {".npz": b"PK", ".npy": np.lib.format.MAGIC_PREFIX}
    if stream.read(len(kinds[suffix])) != kinds[suffix]:  # numpy takes anything else for a pickle
        raise ValueError(f"expected a readable {suffix} file, got one that begins otherwise")
    stream.seek(0)
    try:
        return np.load(stream, allow_pickle=False)
    except DAMAGED_NPZ as error:
        if "Object arrays" in str(error):
            raise ValueError(f"expected numbers, {PICKLED}") from None
        raise ValueError(f"expected a readable {suffix} file, got {brief(error)}") from None


def _array(stored: Mapping[str, Any], name: str) -> NDArray[Any]:
    try:
        return np.asarray(stored[name])
    except DAMAGED_NPZ as error:
        if "pickle" not in str(error):
            raise ValueError(f"array {name!r}: cannot be read: {brief(error)}") from None
        raise ValueError(f"array {name!r}: expected numbers or words, {PICKLED}") from None


def _safetensors(file: Path) -> EmbeddingTable:
    from safetensors import SafetensorError
    from safetensors.torch import load_file  # the one that knows bfloat16

    try:
        tensors = load_file(file)
    except SafetensorError as error:
        raise ValueError(f"expected a readable .safetensors file, got {brief(error)}") from None
    halves = {name for name, tensor in tensors.items() if tensor.element_size() == 2}
    return _from_arrays(
        {name: (t.float() if name in halves else t).numpy() for name, t in tensors.items()}
    )


def _npy(file: Path) -> EmbeddingTable:
    with file.open("rb") as stream:
        vectors = _loaded(stream, ".npy")
    beside = file.with_suffix(".csv")
    if not beside.is_file():
        return EmbeddingTable(vectors)
    with beside.open(newline="", encoding="utf-8-sig") as lines:
        rows = list(csv.reader(lines))
    rows = [row for row in rows if row]
    if not rows or any(len(row) != len(rows[0]) for row in rows):
        raise ValueError(
            f"{beside.name}: expected a line of column names and lines of as many cells"
        )
    columns = {name.strip(): [row[i] for row in rows[1:]] for i, name in enumerate(rows[0])}
    if len(rows) - 1 != len(vectors):
        raise ValueError(
            f"{beside.name}: expected {len(vectors)} lines below the column names, one for each "
            f"vector, got {len(rows) - 1}"
        )
    return _from_columns(vectors, columns)


def _parquet(file: Path) -> EmbeddingTable:
    try:
        from pyarrow import ArrowInvalid  # type: ignore[import-not-found,import-untyped]
        from pyarrow.parquet import (  # type: ignore[import-not-found,import-untyped]
            read_table as read_parquet,
        )
    except ImportError:
        raise ValueError(
            "expected pyarrow, which reads Parquet, got none installed; "
            "pip install 'kinspace[parquet]'"
        ) from None
    try:
        found = read_parquet(file)
    except ArrowInvalid as error:
        raise ValueError(f"expected a readable .parquet file, got {brief(error)}") from None
    columns: dict[str, list[Any]] = {name: found[name].to_pylist() for name in found.column_names}
    lists = [name for name, cells in columns.items() if cells and isinstance(cells[0], list)]
    name = _find(VECTORS, lists) or (lists[0] if len(lists) == 1 else None)
    if name is None:
        raise ValueError(f"expected a column 'vectors' of lists of numbers, got {list(columns)}")
    if getattr(found.schema.field(name).type, "list_size", 0):  # as ours are: rows of one length
        flat = found[name].combine_chunks().flatten().to_numpy()
        vectors = flat.reshape(len(found), -1)
        return _from_columns(vectors, {key: columns[key] for key in columns if key not in lists})
    rows = columns.pop(name)
    sizes = {0 if row is None else len(row) for row in rows}
    if len(sizes) > 1:
        raise ValueError(
            f"column {name!r}: expected lists of one length, got {min(sizes)} to {max(sizes)} "
            "numbers"
        )
    vectors = np.array(rows)
    return _from_columns(vectors, {name: columns[name] for name in columns if name not in lists})


def _from_arrays(arrays: Mapping[str, NDArray[Any]]) -> EmbeddingTable:
    matrices = [name for name, array in arrays.items() if array.ndim == 2]
    name = _find(VECTORS, matrices) or (matrices[0] if len(matrices) == 1 else None)
    if name is None:
        raise ValueError(
            f"expected a matrix named 'vectors', got arrays {sorted(arrays)}; rename it"
        )
    columns = {
        kind: arrays[key].tolist()
        for kind in ("label", "id", "path")
        if (key := _find({"label": LABELS, "id": IDS, "path": PATHS}[kind], arrays)) is not None
    }
    return _from_columns(arrays[name], columns)


def _from_columns(vectors: NDArray[Any], columns: Mapping[str, Sequence[Any]]) -> EmbeddingTable:
    label, ids, paths = (_find(names, columns) for names in (LABELS, IDS, PATHS))
    rest = {name: columns[name] for name in columns if name not in (label, ids, paths)}
    labels, class_names = (None, None) if label is None else _classes(columns[label])
    attributes = None
    if rest:
        from kinspace.data.csv_table import parse_attributes

        words = {name: ["" if c is None else str(c) for c in cells] for name, cells in rest.items()}
        attributes = parse_attributes(words, where="columns")
    return EmbeddingTable(
        vectors,
        labels,
        () if ids is None else tuple(map(str, columns[ids])),
        None if paths is None else tuple(map(str, columns[paths])),
        None if attributes is None else attributes.values.numpy(),
        () if attributes is None else attributes.names,
        class_names,
    )


def _classes(cells: Sequence[Any]) -> tuple[NDArray[np.int64], tuple[str, ...] | None]:
    """Labels that are whole numbers from 0 on stay; others are names, in sorted order."""
    try:
        numbers = [int(cell) for cell in cells]
    except (TypeError, ValueError):
        numbers = [-1]
    if min(numbers, default=-1) >= 0 and all(
        float(c) == n for c, n in zip(cells, numbers, strict=True)
    ):
        return np.array(numbers, np.int64), None
    names, places = np.unique(np.array([str(cell) for cell in cells]), return_inverse=True)
    return places.astype(np.int64), tuple(names.tolist())


def _find(names: Sequence[str], present: Mapping[str, Any] | Sequence[str]) -> str | None:
    """The first of the names that is there, in any case."""
    lower = {name.lower(): name for name in present}
    return next((lower[name.lower()] for name in names if name.lower() in lower), None)


READERS: dict[str, Callable[[Path], EmbeddingTable]] = {
    ".npz": _npz,
    ".npy": _npy,
    ".safetensors": _safetensors,
    ".parquet": _parquet,
}
