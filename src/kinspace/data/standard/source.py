"""The source of a standard set, and the files its copy on disk must have.

Each set has a `Source` for its error messages. A copy that lacks files, or whose counts are not the
official ones, is an error that says what was expected, what was found, and where to get the set.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import torch

from kinspace.data.dataset import Dataset
from kinspace.data.pictures import Pictures

__all__ = ["Counts", "Folder", "Loader", "Source", "build_dataset", "zero_shot_parts"]

NAMED = 5  # missing files in a message; of the others only the number

Folder = str | PathLike[str]

# part -> (pictures, classes). No number of pictures: not certain, not checked.
Counts = Mapping[str, tuple[int | None, int]]


class Loader(Protocol):
    """Reads the official copy of a set. `counts`: what each part must hold; None: unchecked."""

    def __call__(self, root: Folder, *, counts: Counts | None = ...) -> Dataset:
        """The set in a folder, with its official parts."""


@dataclass(frozen=True)
class Source:
    """A set's name in the registry, its title, its home page and the layout of its copy.

    >>> source = Source("birds", "Birds", "https://example.org/birds", "list.txt, images/")
    >>> print(source.missing_files(Path("data"), ["list.txt"]))
    Birds: the copy in data has no list.txt. Expected there: list.txt, images/.
    Get it from https://example.org/birds
    """

    name: str
    title: str
    home: str
    layout: str

    def missing_files(self, root: Path, names: Sequence[str]) -> ValueError:
        """The error for a copy without the named files."""
        some = ", ".join(names[:NAMED])
        more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
        return ValueError(
            f"{self.title}: the copy in {root} has no {some}{more}. "
            f"Expected there: {self.layout}. Get it from {self.home}"
        )

    def find_root(self, root: Folder, *inner: str) -> Path:
        """The folder of the copy, or the first of these folders in it, as its archive unpacks."""
        path = Path(root)
        if not path.exists():
            raise ValueError(
                f"{self.title}: there is no folder {path}. "
                f"Expected there: {self.layout}. Get it from {self.home}"
            )
        return next((path / name for name in inner if (path / name).is_dir()), path)

    def find_files(
        self, root: Path, patterns_by_key: Mapping[str, Sequence[str]]
    ) -> dict[str, Path]:
        """For each key the first file or folder that matches one of its patterns."""
        found: dict[str, Path] = {}
        absent = []
        for key, patterns in patterns_by_key.items():
            hits = [path for pattern in patterns for path in sorted(root.glob(pattern))]
            if hits:
                found[key] = hits[0]
            else:
                absent.append(patterns[0])  # the layout in the message has the others
        if absent:
            raise self.missing_files(root, absent)
        return found


def zero_shot_parts(labels: Sequence[int], classes: int) -> tuple[str, ...]:
    """The zero-shot parts: the first half of the classes to train on, the second to test on.

    >>> zero_shot_parts([0, 1, 2, 3], 4)
    ('train', 'train', 'test', 'test')
    """
    return tuple("train" if label < classes // 2 else "test" for label in labels)


def build_dataset(
    source: Source,
    pictures: Pictures,
    labels: Sequence[int],
    class_names: Sequence[str],
    parts: Sequence[str],
    counts: Counts | None,
    **rest: Any,
) -> Dataset:
    """The data set of a copy, after a check of its counts."""
    _check_counts(source, labels, parts, counts or {})
    return Dataset(
        pictures,
        torch.tensor(labels, dtype=torch.int64),
        tuple(class_names),
        parts=tuple(parts),
        name=source.name,
        standard=True,
        **rest,
    )


def _check_counts(
    source: Source, labels: Sequence[int], parts: Sequence[str], counts: Counts
) -> None:
    wrong = []
    for part, (pictures, classes) in counts.items():
        inside = [label for label, name in zip(labels, parts, strict=True) if name == part]
        found = len(set(inside))
        if found != classes or pictures not in (None, len(inside)):
            expected = "" if pictures is None else f"{pictures:,} pictures of "
            wrong.append(
                f"expected {expected}{classes:,} classes in part {part!r}, "
                f"found {len(inside):,} of {found:,}"
            )
    if wrong:
        raise ValueError(
            f"{source.title}: {'; '.join(wrong)}. This is not a complete official copy: "
            f"get it from {source.home}"
        )
