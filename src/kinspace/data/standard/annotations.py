"""Read the annotation files of the sets: text with columns, and MATLAB files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["column_by_key", "parse_number", "read_mat_column", "read_mat_table", "read_rows"]


def read_rows(path: Path, fields: int, *, skip: int = 0) -> list[list[str]]:
    """The lines of a list, split at white space; the last field may hold spaces.

    Blank lines and lines that start with # are left out.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    found = []
    for number, line in enumerate(lines[skip:], start=skip + 1):
        if not line.strip() or line.startswith("#"):
            continue
        row = line.strip().split(maxsplit=fields - 1)
        if len(row) != fields:
            raise ValueError(f"{path}: line {number}: expected {fields} fields, got {line!r}")
        found.append(row)
    return found


def column_by_key(path: Path, keys: Sequence[str]) -> list[str]:
    """From a list of `key value` lines, the values of the given keys."""
    table = dict(read_rows(path, 2))
    absent = [key for key in keys if key not in table]
    if absent:
        raise ValueError(
            f"{path}: expected a line for each of {len(keys):,} keys, "
            f"{len(absent):,} have none, the first {absent[0]!r}"
        )
    return [table[key] for key in keys]


def parse_number(path: Path, text: str) -> int:
    """A whole number of a list.

    >>> parse_number(Path("test.txt"), "37")
    37
    """
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{path}: expected a whole number, got {text!r}") from None


def read_mat_column(path: Path, variable: str) -> list[Any]:
    """A vector or cell array of a MATLAB file as a list."""
    values: list[Any] = np.atleast_1d(_variable(path, variable)).tolist()
    return values


def read_mat_table(path: Path, variable: str, *fields: str) -> list[list[Any]]:
    """The given fields of a MATLAB struct array, a column each."""
    table = np.atleast_1d(_variable(path, variable))
    known = table.dtype.names or ()
    absent = [field for field in fields if field not in known]
    if absent:
        raise ValueError(f"{path}: {variable} has no field {', '.join(absent)}, only {known}")
    return [table[field].tolist() for field in fields]


def _variable(path: Path, variable: str) -> Any:
    from scipy.io import loadmat

    try:
        content = loadmat(path, squeeze_me=True, variable_names=[variable])
    # scipy raises almost anything on broken data
    except Exception as error:  # noqa: BLE001
        raise ValueError(f"{path}: cannot be read as a MATLAB file: {error}") from None
    if variable not in content:
        raise ValueError(f"{path}: expected a variable {variable!r}, found none")
    return content[variable]
