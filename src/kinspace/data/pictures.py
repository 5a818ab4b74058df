"""Read pictures from files and arrays as upright RGB; `archives.py` reads archives.

Every format (CMYK, 16 bit, palette, alpha, EXIF orientation, several frames) becomes one 8-bit RGB
picture: the first frame, turned upright, transparent parts over white. Its `info` has the file's
"mode" (as in Pillow) and number of "frames". A picture that cannot be read raises
`UnreadablePicture` with its name and the reason; none is skipped here. `kinspace._core.picture`
does this for the bytes of one.
"""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from kinspace._core.picture import FORMATS, UnreadablePicture, decode, known_formats

__all__ = [
    "FORMATS",
    "ArrayPictures",
    "FilePictures",
    "PictureSubset",
    "Pictures",
    "UnreadablePicture",
    "UnreadablePictures",
    "decode",
    "fingerprint",
    "known_formats",
    "size_and_time",
]

LISTED = 20  # bad pictures named in the error; of the others only the number
ADVICE = "repair or remove them, or go on without them: --skip-bad"


class UnreadablePictures(ValueError):
    """The pictures of a data set that cannot be read. bad: all of them, by their index.

    `kinspace.data.drop_unreadable(dataset, error)` is the data set without them.

    >>> print(UnreadablePictures({3: UnreadablePicture("note.jpg", "empty file")}, 8))
    1 of 8 pictures cannot be read:
      note.jpg: empty file
    repair or remove them, or go on without them: --skip-bad
    """

    def __init__(self, bad: dict[int, UnreadablePicture], total: int) -> None:
        lines = [f"{len(bad)} of {total} pictures cannot be read:"]
        lines += [f"  {error}" for error in list(bad.values())[:LISTED]]
        if len(bad) > LISTED:
            lines.append(f"  and {len(bad) - LISTED} more")
        super().__init__("\n".join([*lines, ADVICE]))
        self.bad = bad
        self.total = total

    def __reduce__(
        self,
    ) -> tuple[type[UnreadablePictures], tuple[dict[int, UnreadablePicture], int]]:
        return UnreadablePictures, (self.bad, self.total)


class Pictures(Protocol):
    """A numbered collection of pictures, which may be copied to other processes."""

    def __len__(self) -> int:
        """The number of pictures."""

    def name(self, index: int) -> str:
        """The name of a picture in messages: its path, or archive and member."""

    def read(self, index: int) -> Image.Image:
        """The picture as upright RGB; raises `UnreadablePicture` if it cannot be read."""

    def stamp(self, index: int) -> object:
        """A value that changes with the picture, without reading the file: its size and time."""


class FilePictures:
    """Pictures in files of their own.

    >>> len(FilePictures([Path("a.jpg"), Path("b.jpg")]))
    2
    """

    def __init__(self, paths: Sequence[Path], *, root: Path | None = None) -> None:
        self._paths = list(paths)
        self._above = "" if root is None else f"{root.as_posix()}/"

    def __len__(self) -> int:
        return len(self._paths)

    def name(self, index: int) -> str:
        return self._paths[index].as_posix().removeprefix(self._above)

    def path(self, index: int) -> Path:
        """The path of a picture."""
        return self._paths[index]

    def read(self, index: int) -> Image.Image:
        try:
            kind = self._paths[index].stat().st_mode
            if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):  # a pipe never ends
                raise UnreadablePicture(self.name(index), "not a regular file")
            with self._paths[index].open("rb") as stream:
                return decode(stream, self.name(index))
        except OSError as error:
            raise UnreadablePicture(self.name(index), error.strerror or str(error)) from None

    def stamp(self, index: int) -> object:
        return size_and_time(self._paths[index])


def size_and_time(path: Path) -> tuple[int, int]:
    """Size and time of the last change of a file; -1 for one that cannot be accessed."""
    try:
        status = path.stat()
    except OSError:
        return -1, -1
    return status.st_size, status.st_mtime_ns


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

    def stamp(self, index: int) -> object:
        return hashlib.blake2b(self.array[index].tobytes(), digest_size=16).hexdigest()


class PictureSubset:
    """A part of other pictures in a given order: picture i is picture indices[i] of the whole."""

    def __init__(self, whole: Pictures, indices: Sequence[int]) -> None:
        self.whole = whole
        self.indices = list(indices)

    def __len__(self) -> int:
        return len(self.indices)

    def name(self, index: int) -> str:
        return self.whole.name(self.indices[index])

    def read(self, index: int) -> Image.Image:
        return self.whole.read(self.indices[index])

    def stamp(self, index: int) -> object:
        return self.whole.stamp(self.indices[index])


def fingerprint(pictures: Pictures, *, times: bool = True) -> str:
    """A short text that changes with the pictures and with their order.

    times: False: without the times of files, so that it stays when they are copied.

    Files: name, size and time of the last change of each. Archives: the names of the members, size
    and time of the archive. Arrays: the pixels.

    >>> import numpy as np
    >>> from kinspace.data.pictures import ArrayPictures
    >>> fingerprint(ArrayPictures(np.zeros((2, 8, 8), np.uint8)))
    '...'
    """
    whole = hashlib.blake2b(digest_size=16)
    for index in range(len(pictures)):
        stamp = pictures.stamp(index)
        if not times and isinstance(stamp, tuple):
            stamp = stamp[0]
        whole.update(repr((pictures.name(index), stamp)).encode())
    return whole.hexdigest()
