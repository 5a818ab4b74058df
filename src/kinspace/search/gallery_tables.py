"""Lists of a gallery as rows of plain values, and CSV files of such rows."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kinspace._core.atomic_files import write_atomically
from kinspace.data.dataset import natural_order
from kinspace.embeddings import EmbeddingTable

__all__ = ["class_sizes", "csv_text", "picture_rows", "read_new_classes", "write_csv"]

Row = Mapping[str, Any]


def class_sizes(table: EmbeddingTable) -> dict[str, int]:
    """The pictures of each class that has any, classes in natural order.

    >>> class_sizes(EmbeddingTable(np.eye(3), [1, 1, 0], class_names=("io", "luna")))
    {'io': 1, 'luna': 2}
    """
    if table.labels is None:
        return {}
    counts = {table.class_name(label): n for label, n in enumerate(np.bincount(table.labels)) if n}
    return {name: int(counts[name]) for name in sorted(counts, key=natural_order)}


def picture_rows(table: EmbeddingTable, rows: Sequence[int] | None = None) -> list[dict[str, str]]:
    """Id, class and file of each row, or of some.

    >>> picture_rows(EmbeddingTable(np.eye(2), [0, 1], class_names=("io", "luna")), [1])
    [{'id': '1', 'class': 'luna', 'file': ''}]
    """
    paths, labels = table.paths, table.labels
    return [
        {
            "id": table.ids[row],
            "class": "" if labels is None else table.class_name(int(labels[row])),
            "file": paths[row] if paths else "",
        }
        for row in (range(len(table)) if rows is None else rows)
    ]


def csv_text(rows: Sequence[Row], columns: Sequence[str] | None = None) -> str:
    r"""Rows as CSV with a line of column names.

    >>> csv_text([{"id": "a,b", "class": "io"}])
    'id,class\n"a,b",io\n'
    """
    text = io.StringIO()
    names = list(columns or (rows[0] if rows else ()))
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def write_csv(rows: Sequence[Row], file: Path | None, columns: Sequence[str] | None = None) -> None:
    """Write rows to a CSV file, in one piece, or to the terminal.

    >>> write_csv([{"id": "a", "class": "io"}], None)
    id,class
    a,io
    """
    text = csv_text(rows, columns)
    if file is None:
        sys.stdout.write(text)
    else:
        write_atomically(file, lambda part: part.write_text(text, encoding="utf-8"))


def read_new_classes(file: Path) -> dict[str, list[str]]:
    """The ids for each class in the column `suggested` of a CSV; rows without a class are left out.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_csv([{"id": "a", "suggested": "io"}], Path(folder, "a.csv"))
    ...     read_new_classes(Path(folder, "a.csv"))
    {'io': ['a']}
    """
    try:
        with file.open(newline="", encoding="utf-8-sig") as lines:
            rows = list(csv.DictReader(lines))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{file}: expected a table that can be read, got {error}") from None
    found: dict[str, list[str]] = {}
    for number, row in enumerate(rows, 2):
        if row.get("id") is None or row.get("suggested") is None:
            raise ValueError(f"{file}: line {number}: expected the columns id and suggested")
        if row["suggested"]:
            found.setdefault(row["suggested"], []).append(row["id"])
    return found
