"""What the check takes down of each picture, by as many processes as are wanted."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from PIL import Image

from kinspace._core import checks
from kinspace.data.pictures import Pictures
from kinspace.data.process_pool import CHUNK, chunks, cores, in_processes
from kinspace.data.unreadable import BadPicture

__all__ = ["Look", "look_at_all"]

THUMBNAIL = 16  # pixels a side
_WORTHWHILE = 15.0  # seconds of looking; starting processes takes about five of them


@dataclass(frozen=True)
class Look:
    """One decoded picture: its size, what the file held, and its content in short."""

    width: int
    height: int
    mode: str
    frames: int
    digest: bytes  # the same for the same pixels
    thumbnail: bytes  # (THUMBNAIL, THUMBNAIL, 3), 8 bit


def look_at_all(
    pictures: Pictures,
    *,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Look | str]:
    """A look at each picture, or the reason why it cannot be read.

    workers: processes; by default this one, or one a core if that would take long.
    progress: called with the pictures done and all of them.

    >>> from kinspace.data.pictures import ArrayPictures
    >>> looks = look_at_all(ArrayPictures(np.zeros((2, 8, 9), np.uint8)))
    >>> looks[0].width, looks[0].mode, looks[0] == looks[1]
    (9, 'L', True)
    """
    if workers is not None:
        checks.integer("workers", workers, at_least=1)
    count = len(pictures)
    tell = progress or (lambda done, of: None)
    task = partial(_look_at_some, pictures)
    looks: list[Look | str] = []
    begun = time.monotonic()
    while len(looks) < count and workers in (None, 1):
        looks += task(range(len(looks), min(len(looks) + CHUNK, count)))
        tell(len(looks), count)
        if workers is None:
            rest = (time.monotonic() - begun) / len(looks) * (count - len(looks))
            workers = cores() if rest > _WORTHWHILE else 1
    workers = workers or 1
    parts = chunks(len(looks), count, workers)
    for some in in_processes(task, parts, workers, what="look at the pictures"):
        looks += some
        tell(len(looks), count)
    return looks


def _look_at_some(pictures: Pictures, indices: range) -> list[Look | str]:
    return [_look(pictures, index) for index in indices]


def _look(pictures: Pictures, index: int) -> Look | str:
    try:
        picture = pictures.read(index)
    except BadPicture as bad:
        return bad.reason
    pixels = np.asarray(picture)
    digest = hashlib.blake2b(str(picture.size).encode(), digest_size=16)
    digest.update(pixels.data)
    small = picture.resize((THUMBNAIL, THUMBNAIL), Image.Resampling.BOX)
    mode = str(picture.info.get("mode", picture.mode))
    frames = int(picture.info.get("frames", 1))
    return Look(*picture.size, mode, frames, digest.digest(), small.tobytes())
