"""Pictures listed in a CSV or TSV table.

    path                 of the picture, relative to the table's folder and in it
    label                its class; without this column the data set has no classes
    split   (optional)   its official part: train, val, test
    role    (optional)   query or gallery, for pictures of the test part
    others  (optional)   attributes: numbers from 0 to 1, or words, which become one column each,
                         "color=red"; an empty cell has 0 in all of them

The names of the columns may be in any case and order, and `columns` says which are path and label
where they have other names. A picture is listed once. The delimiter is
a tab in a .tsv file; elsewhere whichever of comma, semicolon and tab is most frequent in the first
line. Text is UTF-8, with or without a byte order mark, or UTF-16 with one.
"""

from __future__ import annotations

import codecs
import csv
import io
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kinspace._core.checks import first_few
from kinspace.data.dataset import Attributes, Dataset, from_names, natural_order, unlabeled
from kinspace.data.folder import PARTS, part_name
from kinspace.data.pictures import FilePictures, Pictures

__all__ = [
    "MOST_WORDS",
    "Table",
    "from_table",
    "parse_attributes",
    "read_table",
    "require_files",
    "table_dataset",
]

_KNOWN = ("path", "label", "split", "role")
_ROLES = ("query", "gallery")
MOST_WORDS = 256  # a column with more different words is text, not an attribute


@dataclass(frozen=True)
class Table:
    """The columns of a table, one entry per picture."""

    paths: tuple[str, ...]
    labels: tuple[str, ...] | None
    parts: tuple[str, ...] | None = None
    attributes: Attributes | None = None


def from_table(
    file: str | Path,
    *,
    attributes: Sequence[str] | None = None,
    labeled: bool | None = None,
    columns: Mapping[str, str] | None = None,
    allow_outside: bool = False,
) -> Dataset:
    r"""The pictures listed in a table; see the module for its columns.

    attributes: the columns to take as attributes; by default all that are not path, label, split
    or role. labeled: False: the column label is not read; True: it has to be there. columns: the
    names of the columns path and label in this table, {"path": "file", "label": "breed"}.
    allow_outside: the pictures may be outside the table's folder, which a table from somebody else
    could use to name any file; links in the folder are followed in any case.

    >>> from tempfile import TemporaryDirectory
    >>> from PIL import Image
    >>> with TemporaryDirectory() as folder:
    ...     Image.new("RGB", (8, 8)).save(Path(folder, "a b.png"))
    ...     table = Path(folder, "moths.csv")
    ...     _ = table.write_text("path,label,color\na b.png,luna,green\n")
    ...     moths = from_table(table)
    >>> moths.class_names, moths.attributes.names
    (('luna',), ('color=green',))
    """
    file = Path(file)
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise ValueError(f"{file}: expected a table, got {error.strerror!r}") from None
    table = read_table(
        raw, where=str(file), attributes=attributes, labeled=labeled, columns=columns
    )
    paths = [file.parent / path for path in table.paths]
    if not allow_outside:
        _require_inside(paths, file)
    require_files([str(path) for path in paths if not _is_there(path)], len(paths), str(file))
    return table_dataset(table, FilePictures(paths, root=file.parent), name=file.stem)


def table_dataset(table: Table, pictures: Pictures, *, name: str) -> Dataset:
    """A table and its pictures as a data set."""
    rest: dict[str, Any] = {"parts": table.parts, "attributes": table.attributes, "name": name}
    if table.labels is None:
        return unlabeled(pictures, **rest)
    return from_names(pictures, table.labels, **rest)


def read_table(
    raw: bytes,
    *,
    where: str,
    attributes: Sequence[str] | None = None,
    labeled: bool | None = None,
    columns: Mapping[str, str] | None = None,
) -> Table:
    r"""Read a table from bytes; `where` is its file's name. The others are as for `from_table`.

    >>> read_table(b"label;path;split\nluna;1.jpg;train\n", where="moths.csv")
    Table(paths=('1.jpg',), labels=('luna',), parts=('train',), attributes=None)
    """
    renamed = columns or {}
    cells = _renamed(_columns(_text(raw, where), where, renamed.values()), renamed, where)
    if labeled is None:  # a column "class" or "Label name" is more likely a mistake than none
        labeled = set(cells) != {"path"}
    for name in ("path", "label") if labeled else ("path",):
        _require_column(name, cells, where)
        empty = [str(row) for row, cell in enumerate(cells[name], 1) if not cell]
        if empty:
            raise ValueError(
                f"{where}: expected a {name} for every picture, got none for {len(empty)}: "
                f"picture {first_few(empty)}"
            )
    _check_repeats(cells["path"], where)
    extra = [name for name in cells if name not in _KNOWN] if attributes is None else attributes
    for name in extra:
        _require_column(name, cells, where)
    return Table(
        tuple(cells["path"]),
        tuple(cells["label"]) if labeled else None,
        _parts(cells, where),
        parse_attributes({name: cells[name] for name in extra}, where=where),
    )


def _require_inside(paths: Sequence[Path], file: Path) -> None:
    """Raise an error if pictures of a table are outside its folder."""
    folder = os.path.join(os.path.abspath(file.parent), "")  # noqa: PTH100, PTH118 - links stay
    outside = [
        str(path)
        for path in paths
        if not os.path.abspath(path).startswith(folder)  # noqa: PTH100
    ]
    if outside:
        raise ValueError(
            f"{file}: expected pictures in the table's folder, got {len(outside)} of {len(paths)} "
            f"outside: {first_few(outside)}; move the table to a folder above them, or trust it: "
            "--allow-outside (in Python allow_outside=True)"
        )


def require_files(missing: Sequence[str], count: int, where: str) -> None:
    """Raise an error if pictures of a table are missing."""
    if missing:
        raise ValueError(
            f"{where}: expected all of the {count} pictures it lists, got {len(missing)} missing: "
            f"{first_few(missing)}; paths are relative to the table's folder"
        )


def _is_there(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True  # it exists but cannot be accessed: the check gives the reason
    return True


def _text(raw: bytes, where: str) -> str:
    wide = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    try:
        return raw.decode("utf-16" if wide else "utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{where}: expected text in UTF-8, got byte {error.start} that is none; "
            "save the table as UTF-8"
        ) from None


def _renamed(
    found: dict[str, list[str]], names: Mapping[str, str], where: str
) -> dict[str, list[str]]:
    """The columns, where the table has other names for path and label."""
    for name in names.values():
        _require_column(name, found, where)
    own = {there: ours for ours, there in names.items()}
    replaced = {name for name in names if name not in own}  # a column "path" that is not the one
    return {own.get(name, name): cells for name, cells in found.items() if name not in replaced}


def _columns(text: str, where: str, given: Iterable[str]) -> dict[str, list[str]]:
    """The cells of each column, by its name in lower case for those we know and were not given."""
    first = text.lstrip().partition("\n")[0]
    delimiter = "\t" if where.lower().endswith(".tsv") else max(",;\t", key=first.count)
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        rows = [
            (reader.line_num, [cell.strip() for cell in row])
            for row in reader
            if any(cell.strip() for cell in row)
        ]
    except csv.Error as error:
        raise ValueError(f"{where}: line {reader.line_num}: {error}") from None
    if len(rows) < 2:
        raise ValueError(
            f"{where}: expected a line of column names and a line for each picture, "
            f"got {len(rows)} lines"
        )
    exact = set(given)
    header = [
        name.lower() if name.lower() in _KNOWN and name not in exact else name
        for name in rows[0][1]
    ]
    twice = [name for name, times in Counter(header).items() if times > 1 or not name]
    if twice:
        raise ValueError(f"{where}: expected a name of its own for each column, got {header}")
    for line, row in rows[1:]:
        if len(row) != len(header):
            raise ValueError(
                f"{where}: line {line}: expected {len(header)} cells ({', '.join(header)}), "
                f"got {len(row)}; put a cell that holds a {delimiter!r} in quotes"
            )
    return {name: [row[i] for _, row in rows[1:]] for i, name in enumerate(header)}


def _require_column(name: str, columns: dict[str, list[str]], where: str) -> None:
    if name not in columns:
        near = get_close_matches(name, columns, n=1)
        advice = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(
            f"{where}: expected a column {name!r}, got {first_few(list(columns), 12)}; "
            f"{advice}rename the column, or name it by --path-column or --label-column (columns=)"
        )


def _check_repeats(paths: Sequence[str], where: str) -> None:
    # A picture listed twice could be trained on and tested with.
    normal = Counter(Path(path).as_posix() for path in paths)
    twice = [path for path, times in normal.items() if times > 1]
    if twice:
        raise ValueError(
            f"{where}: expected every picture once, got {len(twice)} listed more often: "
            f"{first_few(twice)}; keep one line for each"
        )


def _parts(columns: dict[str, list[str]], where: str) -> tuple[str, ...] | None:
    if "split" not in columns and "role" not in columns:
        return None
    nothing = [""] * len(columns["path"])
    pairs = zip(columns.get("split", nothing), columns.get("role", nothing), strict=True)
    return tuple(_part(split, role, row, where) for row, (split, role) in enumerate(pairs, 1))


def _part(split: str, role: str, row: int, where: str) -> str:
    part = part_name(split) if split else None
    if (split and part is None) or not (split or role):
        words = ", ".join(repr(word) for word in dict.fromkeys(PARTS.values()))
        raise ValueError(f"{where}: picture {row}: expected a split, one of {words}, got {split!r}")
    if not role:
        assert part is not None
        return part
    if role.lower() not in _ROLES:
        raise ValueError(
            f"{where}: picture {row}: expected the role 'query', 'gallery' or none, got {role!r}"
        )
    if part not in (None, "test", role.lower()):
        raise ValueError(
            f"{where}: picture {row}: expected a role only for the test part, got role {role!r} "
            f"with split {split!r}; leave the role empty there"
        )
    return role.lower()


def parse_attributes(columns: Mapping[str, Sequence[str]], *, where: str) -> Attributes | None:
    """The columns as numbers: one for a column of numbers, one per word for a column of words.

    >>> parse_attributes({"size": ["0.5", "1"], "color": ["red", "blue"]}, where="table")
    Attributes(names=('size', 'color=blue', 'color=red'), values=tensor([[0.5000, 0.0000, 1.0000],
            [1.0000, 1.0000, 0.0000]]))
    """
    names: list[str] = []
    values: list[Tensor] = []
    for name, cells in columns.items():
        numbers = _numbers(cells)
        if numbers is not None:
            names.append(name)
            values.append(_in_range(name, numbers, where))
            continue
        for word in _words(name, cells, where):
            names.append(f"{name}={word}")
            values.append(torch.tensor([float(cell == word) for cell in cells]))
    return Attributes(tuple(names), torch.stack(values, dim=1)) if names else None


def _numbers(cells: Sequence[str]) -> list[float] | None:
    """The cells as numbers, if they all are; an empty cell makes them words."""
    try:
        return [float(cell) for cell in cells]
    except ValueError:
        return None


def _in_range(name: str, numbers: list[float], where: str) -> Tensor:
    for row, number in enumerate(numbers):
        if not 0 <= number <= 1:
            raise ValueError(
                f"{where}: column {name!r}: expected numbers from 0 to 1, or words, got "
                f"{number:g} for picture {row + 1}; scale the numbers, or write words for them "
                "(size 3 as 'large')"
            )
    return torch.tensor(numbers, dtype=torch.float32)


def _words(name: str, cells: Sequence[str], where: str) -> list[str]:
    words = sorted(set(cells) - {""}, key=natural_order)
    if len(words) > MOST_WORDS:
        raise ValueError(
            f"{where}: column {name!r}: expected an attribute, numbers from 0 to 1 or at most "
            f"{MOST_WORDS} different words, got {len(words)} words; remove the column, or name "
            "the columns to take: from_table(file, attributes=[...])"
        )
    numeric = [word for word in words if _numbers([word]) is not None]
    if numeric and len(numeric) == len(words) and "" in cells:
        raise ValueError(
            f"{where}: column {name!r}: expected a number from 0 to 1 in every row, got "
            f"{list(cells).count('')} empty cells; fill them, or write words"
        )
    return words
