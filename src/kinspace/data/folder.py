"""A folder of class folders, or of pictures without classes.

`kinspace.data.layout` says what is a class and what a picture.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from kinspace.data.dataset import Dataset, from_names, unlabeled
from kinspace.data.layout import find_layout, is_ignored
from kinspace.data.pictures import FilePictures

__all__ = ["from_folder"]


def from_folder(folder: str | Path, *, labeled: bool | None = None) -> Dataset:
    """The pictures of a folder, one class per folder in it, by path; classes in natural order.

    labeled: False: the folders are no classes, and the data set has none; by default it has none
    if all pictures lie directly in the folder.

    >>> from tempfile import TemporaryDirectory
    >>> from PIL import Image
    >>> with TemporaryDirectory() as photos:
    ...     for name in ("luna/1.png", "io/1.png", "io/wild/2.png"):
    ...         path = Path(photos, name)
    ...         path.parent.mkdir(parents=True, exist_ok=True)
    ...         Image.new("RGB", (8, 8)).save(path)
    ...     moths = from_folder(photos)
    >>> moths.class_names, moths.labels.tolist()
    (('io', 'luna'), [0, 0, 1])
    """
    root = Path(folder)
    if not root.is_dir():
        came = "a file" if root.exists() else "nothing there"
        raise ValueError(f"{root}: expected a folder of class folders, got {came}")
    files: list[PurePosixPath] = []
    folders: list[PurePosixPath] = []
    for path, is_folder in _walk(root, ()):
        (folders if is_folder else files).append(PurePosixPath(path.relative_to(root)))
    layout = find_layout(files, folders, where=str(root), labeled=labeled)
    pictures = FilePictures([root / path for path in files], root=root)
    name = root.resolve().name
    if layout.classes is None:
        return unlabeled(pictures, name=name)
    return from_names(pictures, layout.classes, parts=layout.parts, name=name)


def _walk(folder: Path, above: tuple[tuple[int, int], ...]) -> Iterator[tuple[Path, bool]]:
    """Everything below a folder in sorted order, and whether it is a folder. Follows links."""
    try:
        status = folder.stat()
        with os.scandir(folder) as entries:
            found = sorted((entry.name, entry.is_dir()) for entry in entries)
    except OSError as error:
        raise ValueError(
            f"{folder}: expected a folder that can be read, got {error.strerror!r}; "
            "change its permissions or remove it"
        ) from None
    here = (status.st_dev, status.st_ino)
    if here in above:
        raise ValueError(
            f"{folder}: expected a tree of folders, got a link back to a folder above it; "
            "remove the link"
        )
    for name, is_folder in found:
        if not is_ignored(name):
            yield folder / name, is_folder
            if is_folder:
                yield from _walk(folder / name, (*above, here))
