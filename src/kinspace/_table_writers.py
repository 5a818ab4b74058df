"""Embedding tables as files of other tools; `_table_files.py` reads most of them back."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kinspace._core.atomic_files import write_atomically
from kinspace._core.checks import or_list

if TYPE_CHECKING:
    from kinspace.embeddings import EmbeddingTable

__all__ = ["WRITERS", "require_writable", "to_fiftyone", "write_table"]


def write_table(table: EmbeddingTable, file: Path) -> None:
    """Write the table in the format of the file's ending; see `EmbeddingTable.save`."""
    require_writable(file)
    WRITERS[file.suffix.lower()](table, file)


def require_writable(file: Path) -> None:
    """A ValueError for an ending that no format has, or one whose package is not installed.

    >>> require_writable(Path("table.xlsx"))
    Traceback (most recent call last):
    ValueError: table.xlsx: expected a file ending in '.npz', '.npy', '.parquet' or '.tsv', ...
    """
    if file.suffix.lower() not in WRITERS:
        raise ValueError(
            f"{file}: expected a file ending in {or_list(list(WRITERS))}, got {file.suffix!r}"
        )
    if file.suffix.lower() == ".parquet":
        _pyarrow(file)


def _npz(table: EmbeddingTable, file: Path) -> None:
    def write(part: Path) -> None:
        with part.open("wb") as out:  # savez would add .npz to the name
            np.savez(out, **table.arrays())  # type: ignore[arg-type]

    write_atomically(file, write)


def _npy(table: EmbeddingTable, file: Path) -> None:
    """The vectors, and the columns in a CSV beside them."""

    def write(part: Path) -> None:
        with part.open("wb") as out:
            np.save(out, table.vectors, allow_pickle=False)

    write_atomically(file, write)
    _write_rows(table, file.with_suffix(".csv"), ",")


def _parquet(table: EmbeddingTable, file: Path) -> None:
    """A column of lists, and the others as they are."""
    arrow, parquet = _pyarrow(file)
    flat = arrow.array(table.vectors.ravel())
    vectors = arrow.FixedSizeListArray.from_arrays(flat, table.dim)
    columns = {"vectors": vectors, **dict(_columns(table))}
    write_atomically(file, lambda part: parquet.write_table(arrow.table(columns), part))


def _tsv(table: EmbeddingTable, file: Path) -> None:
    """Vectors and metadata as TensorBoard's projector loads them (projector.tensorflow.org)."""
    write_atomically(file, lambda part: np.savetxt(part, table.vectors, fmt="%.7g", delimiter="\t"))
    _write_rows(table, file.with_name(f"{file.stem}-metadata.tsv"), "\t")


WRITERS: dict[str, Callable[[EmbeddingTable, Path], None]] = {
    ".npz": _npz,
    ".npy": _npy,
    ".parquet": _parquet,
    ".tsv": _tsv,
}


def _columns(table: EmbeddingTable) -> Iterator[tuple[str, list[Any]]]:
    """What the table has beside the vectors, a cell a row."""
    yield "id", list(table.ids)
    if table.labels is not None:
        yield "label", [table.class_name(int(label)) for label in table.labels]
    if table.paths is not None:
        yield "path", list(table.paths)
    if table.attributes is not None:
        for name, values in zip(table.attribute_names, table.attributes.T, strict=True):
            yield name, values.tolist()


def _write_rows(table: EmbeddingTable, file: Path, delimiter: str) -> None:
    columns = dict(_columns(table))

    def write(part: Path) -> None:
        with part.open("w", newline="", encoding="utf-8") as out:
            rows = csv.writer(out, delimiter=delimiter, lineterminator="\n")
            rows.writerow(columns)
            rows.writerows(zip(*columns.values(), strict=True))

    write_atomically(file, write)


def to_fiftyone(table: EmbeddingTable, name: str | None = None) -> Any:
    """The table as a data set of FiftyOne; see `EmbeddingTable.to_fiftyone`."""
    paths = table.paths
    if paths is None or not all(paths):
        raise ValueError("to_fiftyone: expected a file for each row (paths), got rows without one")
    try:
        import fiftyone  # type: ignore[import-not-found,import-untyped]
    except ImportError:
        raise ValueError("fiftyone is not installed; pip install 'kinspace[fiftyone]'") from None
    columns = dict(_columns(table))
    ids, labels = columns.pop("id"), columns.pop("label", None)
    columns.pop("path")
    samples = []
    for row, path in enumerate(paths):
        sample = fiftyone.Sample(filepath=path, embedding=table.vectors[row], kinspace_id=ids[row])
        if labels is not None:
            sample["ground_truth"] = fiftyone.Classification(label=labels[row])
        if columns:  # in a field of its own: a name may be that of a field of FiftyOne
            sample["attributes"] = {name: cells[row] for name, cells in columns.items()}
        samples.append(sample)
    dataset = fiftyone.Dataset(name)
    dataset.add_samples(samples, progress=False)
    return dataset


def _pyarrow(file: Path) -> tuple[Any, Any]:
    try:
        import pyarrow  # type: ignore[import-not-found,import-untyped]
        import pyarrow.parquet  # type: ignore[import-not-found,import-untyped]
    except ImportError:
        raise ValueError(
            f"{file}: expected pyarrow, which writes Parquet, got none installed; "
            "pip install 'kinspace[parquet]'"
        ) from None
    return pyarrow, pyarrow.parquet
