"""The files that tiny copies of the standard sets are made of.

A picture is one flat gray that tells its class (`shade`), so that a test sees whether label and
picture belong together.
"""

import gzip
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from kinspace.data.dataset import Dataset

PICTURES = (".jpg", ".jpeg", ".png")


def shade(label: int) -> int:
    return 10 + 2 * label


def write_picture(path: Path, label: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", (6, 4), (shade(label),) * 3).save(path)


def write_lines(path: Path, *lines: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def mat_struct(rows: Sequence[dict[str, Any]]) -> NDArray[Any]:
    """A MATLAB struct array of one row, as the devkits have them."""
    table = np.empty((1, len(rows)), dtype=[(key, object) for key in rows[0]])
    for i, row in enumerate(rows):
        table[0, i] = tuple(row.values())
    return table


def mat_cells(names: Sequence[str], *, upright: bool = False) -> NDArray[Any]:
    cells = np.array([*names, None], dtype=object)[:-1]
    return cells.reshape(-1, 1) if upright else cells.reshape(1, -1)


def zip_folder(folder: Path, archive: Path, *, prefix: str = "", only: str = "") -> None:
    """Move a folder's files into an archive; `only`: those whose name starts so."""
    with zipfile.ZipFile(archive, "a") as opened:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder).as_posix()
            if path.is_file() and name.startswith(only):
                opened.write(path, prefix + name)
                path.unlink()
    if not any(path.is_file() for path in folder.rglob("*")):
        for inner in sorted(folder.rglob("*"), reverse=True):
            inner.rmdir()
        folder.rmdir()


def idx(path: Path, values: NDArray[np.uint8]) -> None:
    head = bytes((0, 0, 8, values.ndim)) + struct.pack(f">{values.ndim}I", *values.shape)
    data = head + values.tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def shades(dataset: Dataset) -> list[int]:
    """The gray of each picture."""
    return [round(float(np.asarray(image).mean())) for image, _, _ in dataset]


def shows_its_classes(dataset: Dataset) -> bool:
    """Whether each picture has the gray of its label's class; JPEG may be off by one."""
    expected = [shade(label) for label in dataset.labels.tolist()]
    found = zip(shades(dataset), expected, strict=True)
    return all(abs(gray - wanted) <= 1 for gray, wanted in found)


def lists_and_pictures(root: Path) -> tuple[list[Path], list[Path]]:
    """The files of a copy: its lists, its pictures."""
    files = sorted(path for path in root.rglob("*") if path.is_file())
    pictures = [path for path in files if path.suffix.lower() in PICTURES]
    return [path for path in files if path not in pictures], pictures
