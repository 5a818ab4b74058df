"""A folder of class folders, or of pictures without classes.

    photos/<class>/<picture>              one folder a class
    photos/<part>/<class>/<picture>       official parts above: train, test, val, query, gallery
    photos/<picture>                      no classes: every picture lies directly in the folder

The second reading is taken when every top folder has the name of a part, the third when there are
no folders. Pictures in folders that are not classes (by date, by camera) are read without classes
on request: `labeled=False`, on the command line --unlabeled. Folders within a class folder belong
to the class. Hidden files and those that desktop programs leave (names that start with a dot,
Thumbs.db, desktop.ini, __MACOSX) are left out; every other file is a picture, whatever its
extension, and `kinspace.data.check` lists those that cannot be read.

`find_layout` applies these rules to paths alone, for a folder on disk and for an archive.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from kinspace._core.checks import first_few
from kinspace.data.dataset import Dataset, from_names, unlabeled
from kinspace.data.pictures import FilePictures

__all__ = [
    "PARTS",
    "Layout",
    "find_layout",
    "from_folder",
    "is_ignored",
    "part_name",
    "require_utf8",
]

IGNORED = ("thumbs.db", "desktop.ini", "__macosx")
# The names of parts in folders and tables, and ours.
PARTS = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
    "testing": "test",
    "query": "query",
    "gallery": "gallery",
}


@dataclass(frozen=True)
class Layout:
    """The class of each file, and its official part where there are parts; None: no classes."""

    classes: tuple[str, ...] | None
    parts: tuple[str, ...] | None


def require_utf8(name: str, where: str) -> None:
    r"""Raise a ValueError for a file name that is no text: it could not be printed or written.

    >>> require_utf8("caf\udce9.jpg", "photos")
    Traceback (most recent call last):
    ValueError: photos: expected file names in UTF-8, got 'caf\udce9.jpg'; rename it
    """
    try:
        name.encode()
    except UnicodeEncodeError:
        shown = ascii(name)
        raise ValueError(
            f"{where.encode(errors='replace').decode()}: expected file names in UTF-8, got "
            f"{shown}; rename it"
        ) from None


def is_ignored(name: str) -> bool:
    """Whether a file or folder of that name is left out.

    >>> [is_ignored(name) for name in (".DS_Store", "Thumbs.db", "notes.txt")]
    [True, True, False]
    """
    return name.startswith(".") or name.lower() in IGNORED


def part_name(name: str) -> str | None:
    """The official part for a folder's name or a word of a table.

    >>> part_name("Validation"), part_name("birds")
    ('val', None)
    """
    return PARTS.get(name.strip().lower())


def find_layout(
    files: Sequence[PurePosixPath],
    folders: Sequence[PurePosixPath],
    *,
    where: str,
    labeled: bool | None = None,
) -> Layout:
    """Class and part of each file, from its path below the top; folders: all folders there.

    labeled: False: there are no classes, whatever the folders; True: a file outside of a class
    folder is an error; None: there are none if there are no folders.

    >>> files = [PurePosixPath("train/luna/1.jpg"), PurePosixPath("test/io/2 b.jpg")]
    >>> find_layout(files, [], where="photos")
    Layout(classes=('luna', 'io'), parts=('train', 'test'))
    """
    if not files:
        raise ValueError(
            f"{where}: expected a folder of class folders with pictures in them, got no files; "
            "put the pictures of each class into a folder named after the class"
        )
    if labeled is None:
        labeled = bool(folders) or any(len(path.parts) > 1 or _is_table(path) for path in files)
    if not labeled:
        return Layout(None, None)
    tops = {path.parts[0] for path in folders} | {p.parts[0] for p in files if len(p.parts) > 1}
    depth = 1 if tops and all(part_name(top) for top in tops) else 0
    _check_loose_files(files, depth, where)
    _check_empty_classes(files, folders, depth, where)
    _check_depth(files, depth, where)
    classes = tuple(path.parts[depth] for path in files)
    if not depth:
        return Layout(classes, None)
    return Layout(classes, tuple(PARTS[path.parts[0].lower()] for path in files))


def _check_loose_files(files: Sequence[PurePosixPath], depth: int, where: str) -> None:
    loose = [path for path in files if len(path.parts) < depth + 2]
    if not loose:
        return
    tables = [path for path in loose if _is_table(path)]
    advice = (
        f"open the table {str(tables[0])!r} instead, or move it away"
        if tables
        else "move each picture into a folder named after its class, and other files away; or, if "
        "the folders are no classes, read them without: --unlabeled (labeled=False)"
    )
    raise ValueError(
        f"{where}: expected every picture in a class folder, got {len(loose)} files outside of "
        f"one: {first_few([str(path) for path in loose])}; {advice}"
    )


def _is_table(path: PurePosixPath) -> bool:
    return path.suffix.lower() in (".csv", ".tsv")


def _check_empty_classes(
    files: Sequence[PurePosixPath], folders: Sequence[PurePosixPath], depth: int, where: str
) -> None:
    used = {path.parts[: depth + 1] for path in files}
    empty = sorted({f.parts for f in folders if len(f.parts) == depth + 1} - used)
    if empty:
        raise ValueError(
            f"{where}: expected pictures in every class folder, got {len(empty)} empty: "
            f"{first_few(['/'.join(parts) for parts in empty])}; fill or remove them"
        )


def _check_depth(files: Sequence[PurePosixPath], depth: int, where: str) -> None:
    # One folder that holds folders is the set itself, not the only class of it.
    only = {path.parts[depth] for path in files}
    if not depth and len(only) == 1 and any(len(path.parts) > 2 for path in files):
        inner = only.pop()
        raise ValueError(
            f"{where}: expected class folders, got a single folder {inner!r} that holds "
            f"folders; open {where}/{inner} instead"
        )


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


MOST_DEPTH = 64  # folders, one in the other


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
    if len(above) > MOST_DEPTH:
        raise ValueError(
            f"{folder}: expected folders at most {MOST_DEPTH} deep, got more; remove or move them"
        )
    here = (status.st_dev, status.st_ino)
    if here in above:
        raise ValueError(
            f"{folder}: expected a tree of folders, got a link back to a folder above it; "
            "remove the link"
        )
    for name, is_folder in found:
        if not is_ignored(name):
            require_utf8(name, str(folder))
            yield folder / name, is_folder
            if is_folder:
                yield from _walk(folder / name, (*above, here))
