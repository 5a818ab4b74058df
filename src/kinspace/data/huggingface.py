"""Data sets of the library Hugging Face `datasets` (extra `datasets`).

load_dataset(datasets.load_dataset("cifar10", split="train"))
load_dataset("hf:user/moths")            # from the Hub, its splits as official parts
load_dataset("hf:user/moths:train")      # one split
load_dataset("moths-on-disk/")           # a folder that Dataset.save_to_disk wrote
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PIL import Image

from kinspace.data.dataset import Dataset, from_names, unlabeled
from kinspace.data.pictures import UnreadablePicture, decode

__all__ = ["PREFIX", "from_hub", "from_huggingface", "is_huggingface", "is_saved", "load_saved"]

PREFIX = "hf:"
LABELS = ("label", "labels", "class", "category", "fine_label")
PARTS = {"validation": "val", "valid": "val"}  # other splits keep their names


def is_huggingface(value: object) -> bool:
    """Whether an object is a Dataset or a DatasetDict of the library, which is not imported."""
    return type(value).__module__.partition(".")[0] == "datasets"


def is_saved(folder: Path) -> bool:
    """Whether `save_to_disk` wrote a folder."""
    one = (folder / "dataset_info.json").is_file() and (folder / "state.json").is_file()
    return one or (folder / "dataset_dict.json").is_file()


def load_saved(
    folder: Path, columns: Mapping[str, str] | None = None, *, allow_outside: bool = False
) -> Dataset:
    """The data set in a folder that `save_to_disk` wrote.

    allow_outside: its rows may name files, which a data set from somebody else should not.
    """
    found = _library().load_from_disk(str(folder))
    return from_huggingface(found, columns, name=folder.name, files=allow_outside)


def from_hub(text: str, columns: Mapping[str, str] | None = None) -> Dataset:
    """The data set that "hf:user/name" or "hf:user/name:split" says; its files are kept."""
    name, _, split = text.removeprefix(PREFIX).partition(":")
    library = _library()
    try:
        found = library.load_dataset(name, split=split or None)
    except Exception as error:  # noqa: BLE001 - the library raises many kinds
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"cannot open {text!r}: {reason}") from None
    return from_huggingface(found, columns, name=name.rpartition("/")[2])


def from_huggingface(
    found: Any,
    columns: Mapping[str, str] | None = None,
    *,
    name: str = "dataset",
    files: bool = True,
) -> Dataset:
    """A `Dataset` of the rows of one of the library, or of all splits of a DatasetDict.

    columns: {"path": the column of pictures, "label": that of classes}; by default the first of
    pictures, and label. files: whether a row may name a file in place of a picture's bytes.
    """
    library, parts = _library(), None
    if isinstance(found, dict):
        splits = list(found.values())
        parts = tuple(PARTS.get(key, key) for key, rows in found.items() for _ in range(len(rows)))
        found = splits[0] if len(splits) == 1 else library.concatenate_datasets(splits)
        parts = None if len(splits) == 1 else parts
    columns = columns or {}
    pictures = columns.get("path") or next(
        (key for key, kind in found.features.items() if type(kind).__name__ == "Image"), None
    )
    if pictures is None or pictures not in found.column_names:
        raise ValueError(
            f"{name}: expected a column of pictures, got {', '.join(found.column_names)}; say "
            "which it is: columns={'path': NAME} (--path-column)"
        )
    rows = RowPictures(found.cast_column(pictures, library.Image(decode=False)), pictures, files)
    label = columns.get("label") or next((key for key in LABELS if key in found.features), None)
    if label is None:
        return unlabeled(rows, name=name, parts=parts)
    if label not in found.features:
        raise ValueError(
            f"{name}: expected a column {label!r}, got {', '.join(found.column_names)}"
        )
    names = getattr(found.features[label], "names", None)
    classes = [names[value] if names else str(value) for value in found[label]]
    return from_names(rows, classes, name=name, parts=parts)


class RowPictures:
    """The pictures in a column; bytes are decoded as those of files are."""

    def __init__(self, rows: Any, column: str, files: bool) -> None:
        self._rows = rows
        self._column = column
        self._files = files  # whether a row may name one

    def __len__(self) -> int:
        return len(self._rows)

    def name(self, index: int) -> str:
        """The number of the row."""
        return f"row {index}"

    def read(self, index: int) -> Image.Image:
        """The picture."""
        value = self._rows[index][self._column] or {}
        data, path = value.get("bytes"), value.get("path") or ""
        if data is None and not self._files:
            raise UnreadablePicture(self.name(index), "is a path; allow it with --allow-outside")
        try:
            data = Path(path).read_bytes() if data is None else data
        except OSError as error:
            raise UnreadablePicture(self.name(index), f"cannot be read: {error}") from None
        return decode(io.BytesIO(data), self.name(index))

    def stamp(self, index: int) -> object:
        """A digest of all rows, which the library has already."""
        return getattr(self._rows, "_fingerprint", None)


def _library() -> Any:
    try:
        import datasets
    except ImportError:
        raise ValueError("datasets is not installed; pip install 'kinspace[datasets]'") from None
    return datasets
