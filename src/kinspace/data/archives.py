"""Zip and tar archives (also .gz, .bz2, .xz), read in place.

An archive holds a folder of class folders, or a table (.csv, .tsv) beside its pictures: a
single table at the top makes it the second. A single folder around everything, as most programs
make, is skipped. In a tar the pictures stay in the archive's order, so that one pass reads them
all.
"""

from __future__ import annotations

import io
import lzma
import os
import posixpath
import tarfile
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from PIL import Image

from kinspace._core.checks import brief, first_few
from kinspace.data.csv_table import Table, read_table, require_files, table_dataset
from kinspace.data.dataset import Dataset, from_names, unlabeled
from kinspace.data.folder import find_layout, is_ignored, part_name, require_utf8
from kinspace.data.pictures import UnreadablePicture, decode, size_and_time

__all__ = ["ArchivePictures", "from_archive", "is_archive", "open_archive", "read_member"]

ENDINGS = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
MOST_BYTES = 1_000_000_000  # a larger member counts as a decompression bomb
_Archive = zipfile.ZipFile | tarfile.TarFile
_Opened = tuple[int, _Archive, dict[str, tarfile.TarInfo]]  # the number: of the process
_BROKEN = (OSError, EOFError, tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError)
_UNREADABLE = (*_BROKEN, KeyError, RuntimeError)  # a member that is missing or has a password


class ArchivePictures:
    """Members of a zip or tar archive, read in place. Each process opens the archive for itself.

    A compressed tar is read from its start for each picture out of order: unpack it, or use zip.
    """

    def __init__(self, archive: Path, members: Sequence[str]) -> None:
        self._archive = archive
        self._members = list(members)
        self._stamp = size_and_time(archive)  # once, not for each member
        self._opened: _Opened | None = None

    def __len__(self) -> int:
        return len(self._members)

    def name(self, index: int) -> str:
        return f"{self._archive.name}/{self._members[index]}"

    def read(self, index: int) -> Image.Image:
        member = self._members[index]
        try:
            archive, infos = self._open_here()
            data = read_member(archive, infos.get(member, member))
        except _UNREADABLE as error:
            raise UnreadablePicture(
                self.name(index), f"cannot be unpacked: {brief(error)}"
            ) from None
        return decode(io.BytesIO(data), self.name(index))

    def stamp(self, index: int) -> object:
        return self._stamp

    def _open_here(self) -> tuple[_Archive, dict[str, tarfile.TarInfo]]:
        # after a fork, the handle would share its position with the parent's
        if self._opened is None or self._opened[0] != os.getpid():
            archive = open_archive(self._archive)
            infos: dict[str, tarfile.TarInfo] = {}
            if isinstance(archive, tarfile.TarFile):
                # to find a name, tarfile searches all members from the end
                infos = {info.name: info for info in archive.getmembers()}
            self._opened = (os.getpid(), archive, infos)
        return self._opened[1:]

    def close(self) -> None:
        """Close the archive; the next read opens it again."""
        if self._opened is not None:
            self._opened[1].close()
            self._opened = None

    def __del__(self) -> None:
        self.close()

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_opened": None}


def open_archive(path: Path) -> _Archive:
    """Open a zip or tar archive, by its content."""
    return zipfile.ZipFile(path) if zipfile.is_zipfile(path) else tarfile.open(path)


def read_member(archive: _Archive, member: str | tarfile.TarInfo) -> bytes:
    """The bytes of one file in an archive."""
    if isinstance(archive, zipfile.ZipFile):
        assert isinstance(member, str)
        _check_size(archive.getinfo(member).file_size)
        return archive.read(member)
    info = archive.getmember(member) if isinstance(member, str) else member
    _check_size(info.size)
    stream = archive.extractfile(info)
    if stream is None:
        raise OSError("not a file")
    return stream.read()


def _check_size(size: int) -> None:
    if size > MOST_BYTES:
        raise OSError(f"{size:,} bytes, a bomb?")


def is_archive(path: Path) -> bool:
    """Whether the file is an archive, by its name or else its content."""
    if path.name.lower().endswith(ENDINGS):
        return True
    return zipfile.is_zipfile(path) or tarfile.is_tarfile(path)


def from_archive(
    archive: str | Path,
    *,
    labeled: bool | None = None,
    columns: Mapping[str, str] | None = None,
) -> Dataset:
    """The pictures in an archive. labeled: as for `from_folder`; columns: as for `from_table`.

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
                where = f"{archive}/{tables[0]}"
                table = read_table(raw, where=where, labeled=labeled, columns=columns)
                return _from_table(archive, tables[0], table, members)
    except _UNREADABLE as error:
        raise ValueError(
            f"{archive}: expected a zip or tar archive, got one that cannot be read: {brief(error)}"
        ) from None
    if tables:
        raise ValueError(
            f"{archive}: expected one table, got {len(tables)}: "
            f"{first_few([str(table) for table in tables])}; leave one in the archive"
        )
    if columns:
        raise ValueError(f"{archive}: expected a table in it, whose columns were given, got none")
    depth = _around(list(members))
    files = [PurePosixPath(*path.parts[depth:]) for path in members]
    below = [PurePosixPath(*path.parts[depth:]) for path in folders if len(path.parts) > depth]
    layout = find_layout(files, below, where=str(archive), labeled=labeled)
    pictures = ArchivePictures(archive, list(members.values()))
    if layout.classes is None:
        return unlabeled(pictures, name=_stem(archive))
    return from_names(pictures, layout.classes, parts=layout.parts, name=_stem(archive))


def _members(
    opened: zipfile.ZipFile | tarfile.TarFile,
) -> tuple[dict[PurePosixPath, str], list[PurePosixPath]]:
    """Files and folders but for ignored ones: of a zip sorted, of a tar in its order.

    Files map their path to their name in the archive, which may differ: ./luna/1.jpg.
    """
    if isinstance(opened, zipfile.ZipFile):
        listed = sorted((info.filename, info.is_dir()) for info in opened.infolist())
    else:
        listed = [(info.name, info.isdir()) for info in opened.getmembers()]
    files: dict[PurePosixPath, str] = {}
    folders: list[PurePosixPath] = []
    for name, is_folder in listed:
        require_utf8(name, "archive")
        path = PurePosixPath(name)
        if not path.parts or any(is_ignored(part) for part in path.parts):
            continue
        if is_folder:
            folders.append(path)
        else:
            files[path] = name
    return files, folders


def _around(files: Sequence[PurePosixPath]) -> int:
    """The number of single folders, one in the other, that are around everything."""
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
    archive: Path,
    member: PurePosixPath,
    table: Table,
    members: Mapping[PurePosixPath, str],
) -> Dataset:
    where = f"{archive}/{member}"
    paths = [PurePosixPath(posixpath.normpath(member.parent / path)) for path in table.paths]
    require_files([str(path) for path in paths if path not in members], len(paths), where)
    pictures = ArchivePictures(archive, [members[path] for path in paths])
    return table_dataset(table, pictures, name=_stem(archive))


def _stem(archive: Path) -> str:
    return next(
        (
            archive.name[: -len(ending)]
            for ending in sorted(ENDINGS, key=len, reverse=True)
            if archive.name.lower().endswith(ending)
        ),
        archive.stem,
    )
