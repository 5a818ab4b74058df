"""Zip and tar archives (also .gz, .bz2, .xz), read in place.

An archive holds a folder of class folders, or a table (.csv, .tsv) beside its pictures: one table
at the top makes it the second. A single folder around everything, as most programs make, is looked
through. In a tar the pictures stay in the archive's order, so that one pass reads them all.
"""

from __future__ import annotations

import lzma
import posixpath
import tarfile
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from kinspace.data.archive_pictures import ArchivePictures, open_archive, read_member
from kinspace.data.dataset import Dataset, from_names
from kinspace.data.layout import arrange, few, is_clutter, part_name
from kinspace.data.table import dataset_of, read_table, refuse_missing

__all__ = ["from_archive", "is_archive"]

ENDINGS = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
_BROKEN = (OSError, EOFError, tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError)


def is_archive(path: Path) -> bool:
    """Whether the file is an archive, by its name or else its content."""
    if path.name.lower().endswith(ENDINGS):
        return True
    return zipfile.is_zipfile(path) or tarfile.is_tarfile(path)


def from_archive(archive: str | Path) -> Dataset:
    """The pictures in an archive.

    >>> import io
    >>> from tempfile import TemporaryDirectory
    >>> from PIL import Image
    >>> picture = io.BytesIO()
    >>> Image.new("RGB", (8, 8)).save(picture, "png")
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "moths.zip")
    ...     with zipfile.ZipFile(path, "w") as packed:
    ...         packed.writestr("luna/1.png", picture.getvalue())
    ...     moths = from_archive(path)
    ...     image, label, index = moths[0]
    >>> moths.class_names, image.size
    (('luna',), (8, 8))
    """
    archive = Path(archive)
    try:
        with open_archive(archive) as opened:
            members, folders = _members(opened)
            tables = _tables(list(members))
            if len(tables) == 1:
                raw = read_member(opened, members[tables[0]])
                return _from_table(archive, tables[0], raw, members)
    except _BROKEN as error:
        raise ValueError(
            f"{archive}: expected a zip or tar archive, got one that cannot be read: {error}"
        ) from None
    if tables:
        raise ValueError(
            f"{archive}: expected one table, got {len(tables)}: "
            f"{few([str(table) for table in tables])}; leave one in the archive"
        )
    depth = _around(list(members))
    files = [PurePosixPath(*path.parts[depth:]) for path in members]
    below = [PurePosixPath(*path.parts[depth:]) for path in folders if len(path.parts) > depth]
    layout = arrange(files, below, where=str(archive))
    pictures = ArchivePictures(archive, list(members.values()))
    return from_names(pictures, layout.classes, parts=layout.parts, name=_stem(archive))


def _members(
    opened: zipfile.ZipFile | tarfile.TarFile,
) -> tuple[dict[PurePosixPath, str], list[PurePosixPath]]:
    """Files and folders that are no clutter: a zip's sorted, a tar's in its order.

    A file's path leads to its name in the archive, which may be spelled otherwise: ./luna/1.jpg.
    """
    if isinstance(opened, zipfile.ZipFile):
        listed = sorted((info.filename, info.is_dir()) for info in opened.infolist())
    else:
        listed = [(info.name, info.isdir()) for info in opened.getmembers()]
    files: dict[PurePosixPath, str] = {}
    folders: list[PurePosixPath] = []
    for name, is_folder in listed:
        path = PurePosixPath(name)
        if not path.parts or any(is_clutter(part) for part in path.parts):
            continue
        if is_folder:
            folders.append(path)
        else:
            files[path] = name
    return files, folders


def _around(files: Sequence[PurePosixPath]) -> int:
    """How many folders are around everything: single ones from the top that hold folders."""
    depth = 0
    while (
        len({path.parts[: depth + 1] for path in files}) == 1
        and any(len(path.parts) > depth + 2 for path in files)
        and not part_name(files[0].parts[depth])
    ):
        depth += 1
    return depth


def _tables(files: Sequence[PurePosixPath]) -> list[PurePosixPath]:
    """Tables at the top, or in the single folder around everything."""
    tops = {path.parts[0] for path in files}
    around = len(tops) == 1 and all(len(path.parts) > 1 for path in files)
    return [
        path
        for path in files
        if path.suffix.lower() in (".csv", ".tsv") and len(path.parts) == 1 + around
    ]


def _from_table(
    archive: Path, member: PurePosixPath, raw: bytes, members: Mapping[PurePosixPath, str]
) -> Dataset:
    where = f"{archive}/{member}"
    table = read_table(raw, where=where)
    paths = [PurePosixPath(posixpath.normpath(member.parent / path)) for path in table.paths]
    refuse_missing([str(path) for path in paths if path not in members], len(paths), where)
    pictures = ArchivePictures(archive, [members[path] for path in paths])
    return dataset_of(table, pictures, name=_stem(archive))


def _stem(archive: Path) -> str:
    return next(
        (
            archive.name[: -len(ending)]
            for ending in sorted(ENDINGS, key=len, reverse=True)
            if archive.name.lower().endswith(ending)
        ),
        archive.stem,
    )
