"""Pictures in zip and tar archives, read in place."""

from __future__ import annotations

import io
import lzma
import os
import tarfile
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

from PIL import Image

from kinspace.data.pictures import decode, size_and_time
from kinspace.data.unreadable import BadPicture

__all__ = ["ArchivePictures", "open_archive", "read_member"]

MOST_BYTES = 1_000_000_000  # a larger file in an archive is taken for a decompression bomb
_Archive = zipfile.ZipFile | tarfile.TarFile
_Opened = tuple[int, _Archive, dict[str, tarfile.TarInfo]]  # by the process of that number
_UNREADABLE = (
    OSError,
    KeyError,
    RuntimeError,
    EOFError,
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
)


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
            archive, infos = self._archive_here()
            data = read_member(archive, infos.get(member, member))
        except _UNREADABLE as error:
            raise BadPicture(self.name(index), f"cannot be unpacked: {error}") from None
        return decode(io.BytesIO(data), self.name(index))

    def stamp(self, index: int) -> object:
        return self._stamp

    def _archive_here(self) -> tuple[_Archive, dict[str, tarfile.TarInfo]]:
        # a handle that crossed a fork would share its position with the parent's
        if self._opened is None or self._opened[0] != os.getpid():
            archive = open_archive(self._archive)
            infos: dict[str, tarfile.TarInfo] = {}
            if isinstance(archive, tarfile.TarFile):
                # by name a tar is searched from its end, member by member
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
        _refuse_huge(archive.getinfo(member).file_size)
        return archive.read(member)
    info = archive.getmember(member) if isinstance(member, str) else member
    _refuse_huge(info.size)
    stream = archive.extractfile(info)
    if stream is None:
        raise OSError("not a file")
    return stream.read()


def _refuse_huge(size: int) -> None:
    if size > MOST_BYTES:
        raise OSError(f"{size:,} bytes, a bomb?")
