"""Pictures as they come: from files, archives and arrays, to upright RGB.

Whatever the file holds (CMYK, 16 bit, palette, alpha, EXIF orientation, several frames) becomes one
8-bit RGB picture: the first frame, turned upright, transparent parts over white. Its `info` says
what the file held: "mode" (as Pillow calls it) and "frames". What cannot be read raises
`BadPicture` with the picture's name and the reason; nothing is skipped here.
"""

from __future__ import annotations

import io
import lzma
import os
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

__all__ = [
    "ArchivePictures",
    "ArrayPictures",
    "BadPicture",
    "FilePictures",
    "Pictures",
    "SomePictures",
    "decode",
    "open_archive",
    "read_member",
]

MOST_PIXELS = 100_000_000  # a larger picture is taken for a decompression bomb
MOST_BYTES = 1_000_000_000  # and so is a larger file in an archive
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


class BadPicture(ValueError):
    """A picture that cannot be read: its name and the reason."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name}: {reason}")
        self.name = name
        self.reason = reason

    def __reduce__(self) -> tuple[type[BadPicture], tuple[str, str]]:
        return BadPicture, (self.name, self.reason)  # it crosses from a loader's worker


class Pictures(Protocol):
    """A numbered collection of pictures. May be copied to other processes."""

    def __len__(self) -> int:
        """The number of pictures."""

    def name(self, index: int) -> str:
        """What to call a picture when talking to people: its path, its place in an archive."""

    def read(self, index: int) -> Image.Image:
        """The picture, upright RGB; `BadPicture` if that cannot be had."""


def decode(stream: IO[bytes], name: str) -> Image.Image:
    """Read one picture as upright 8-bit RGB.

    >>> data = io.BytesIO()
    >>> Image.new("L", (2, 1), 128).save(data, "png")
    >>> decode(data, "gray.png").getpixel((0, 0))
    (128, 128, 128)
    >>> decode(io.BytesIO(b"hello"), "note.jpg")
    Traceback (most recent call last):
    kinspace.data.pictures.BadPicture: note.jpg: not a picture in any known format
    """
    try:
        with warnings.catch_warnings():
            # Pillow's own bomb limit is a warning; broken EXIF and the like are not our business
            warnings.simplefilter("ignore")
            picture = Image.open(stream)
            if picture.width * picture.height > MOST_PIXELS:
                raise BadPicture(name, f"{picture.width} x {picture.height} pixels, a bomb?")
            kind: dict[str | tuple[int, int], object] = {
                "mode": picture.mode,
                "frames": getattr(picture, "n_frames", 1),
            }
            picture.load()
            upright = _rgb(ImageOps.exif_transpose(picture))
            upright.info = kind  # what the file held; profiles and previews only weigh
            return upright
    except BadPicture:
        raise
    except Image.DecompressionBombError:
        raise BadPicture(name, f"more than {MOST_PIXELS:,} pixels, a bomb?") from None
    except UnidentifiedImageError:
        empty = stream.seek(0, os.SEEK_END) == 0
        reason = "empty file" if empty else "not a picture in any known format"
        raise BadPicture(name, reason) from None
    # Pillow's decoders raise almost anything on broken data.
    except Exception as error:  # noqa: BLE001
        raise BadPicture(name, f"cannot be decoded: {error}") from None


def _rgb(picture: Image.Image) -> Image.Image:
    if picture.mode in ("I", "F") or picture.mode.startswith("I;16"):
        return _from_deep(picture)
    if picture.has_transparency_data:
        over = picture.convert("RGBA")
        white = Image.new("RGBA", over.size, "white")
        return Image.alpha_composite(white, over).convert("RGB")
    return picture.convert("RGB")


def _from_deep(picture: Image.Image) -> Image.Image:
    """16-bit gray by its high byte; 32-bit and float by their own range."""
    values = np.asarray(picture).astype(np.float64)
    if picture.mode.startswith("I;16") or (picture.mode == "I" and 255 < values.max() < 65536):
        scaled = values / 257
    elif values.min() >= 0 and values.max() <= 255 and picture.mode == "I":
        scaled = values
    else:
        low, high = np.nanmin(values), np.nanmax(values)
        scaled = (values - low) * (255 / (high - low) if high > low else 0)
    return Image.fromarray(np.nan_to_num(scaled).round().astype(np.uint8)).convert("RGB")


class FilePictures:
    """Pictures in files of their own.

    >>> len(FilePictures([Path("a.jpg"), Path("b.jpg")]))
    2
    """

    def __init__(self, paths: Sequence[Path], *, root: Path | None = None) -> None:
        self._paths = list(paths)
        self._root = root

    def __len__(self) -> int:
        return len(self._paths)

    def name(self, index: int) -> str:
        path = self._paths[index]
        if self._root is not None and path.is_relative_to(self._root):
            path = path.relative_to(self._root)
        return path.as_posix()

    def path(self, index: int) -> Path:
        """Where the picture is on disk."""
        return self._paths[index]

    def read(self, index: int) -> Image.Image:
        try:
            with self._paths[index].open("rb") as stream:
                return decode(stream, self.name(index))
        except OSError as error:
            raise BadPicture(self.name(index), error.strerror or str(error)) from None


class ArchivePictures:
    """Members of a zip or tar archive, read in place. Each process opens the archive for itself.

    A compressed tar is read from its start for each picture out of order: unpack it, or use zip.
    """

    def __init__(self, archive: Path, members: Sequence[str]) -> None:
        self._archive = archive
        self._members = list(members)
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


class ArrayPictures:
    """Pictures in memory: (pictures, height, width) gray or (..., 3) RGB, 8 bit.

    >>> ArrayPictures(np.zeros((5, 8, 8), np.uint8)).read(0).size
    (8, 8)
    """

    def __init__(self, array: NDArray[np.uint8], *, prefix: str = "picture") -> None:
        rgb = array.ndim == 4 and array.shape[-1] == 3
        if array.dtype != np.uint8 or not (rgb or array.ndim == 3) or 0 in array.shape[1:]:
            raise ValueError(
                "array: expected uint8 of shape (pictures, height, width) or (..., 3), "
                f"got {array.dtype} {array.shape}"
            )
        self.array = array
        self._prefix = prefix

    def __len__(self) -> int:
        return len(self.array)

    def name(self, index: int) -> str:
        return f"{self._prefix} {index}"

    def read(self, index: int) -> Image.Image:
        picture = Image.fromarray(self.array[index])
        upright = picture.convert("RGB")
        upright.info = {"mode": picture.mode, "frames": 1}
        return upright


class SomePictures:
    """A part of other pictures, in a given order."""

    def __init__(self, pictures: Pictures, indices: Sequence[int]) -> None:
        self._pictures = pictures
        self._indices = list(indices)

    def __len__(self) -> int:
        return len(self._indices)

    def name(self, index: int) -> str:
        return self._pictures.name(self._indices[index])

    def read(self, index: int) -> Image.Image:
        return self._pictures.read(self._indices[index])
