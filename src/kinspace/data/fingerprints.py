"""Whether pictures are still the same, without reading them all: names, sizes and times."""

from __future__ import annotations

import hashlib
from pathlib import Path

from kinspace.data.pictures import (
    ArchivePictures,
    ArrayPictures,
    FilePictures,
    Pictures,
    SomePictures,
)

__all__ = ["fingerprint"]


def fingerprint(pictures: Pictures) -> str:
    """A short text that changes with the pictures and with their order.

    Files: name, size and time of the last change of each. Archives: the names of the members, size
    and time of the archive. Arrays: the pixels. Any other kind of pictures: `stamp(index)` of each,
    where it has that method, else the names alone.

    >>> import numpy as np
    >>> fingerprint(ArrayPictures(np.zeros((2, 8, 8), np.uint8)))
    '...'
    """
    whole = hashlib.blake2b(digest_size=16)
    archives: dict[Path, tuple[int, int]] = {}
    for index in range(len(pictures)):
        stamp = _stamp(pictures, index, archives)
        whole.update(repr((pictures.name(index), stamp)).encode())
    return whole.hexdigest()


def _stamp(pictures: Pictures, index: int, archives: dict[Path, tuple[int, int]]) -> object:
    """What changes when the picture does."""
    match pictures:
        case SomePictures():
            return _stamp(pictures._pictures, pictures._indices[index], archives)
        case FilePictures():
            return _size_and_time(pictures.path(index))
        case ArchivePictures():
            archive = pictures._archive
            if archive not in archives:  # asked once, not for each member
                archives[archive] = _size_and_time(archive)
            return archives[archive]
        case ArrayPictures():
            return hashlib.blake2b(pictures.array[index].tobytes(), digest_size=16).hexdigest()
        case _:
            own = getattr(pictures, "stamp", None)
            return None if own is None else own(index)


def _size_and_time(path: Path) -> tuple[int, int]:
    try:
        status = path.stat()
    except OSError:
        return -1, -1  # reading it will say what is wrong
    return status.st_size, status.st_mtime_ns
