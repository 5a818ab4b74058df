"""What the check takes down of each picture, by as many processes as are wanted."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass

import numpy as np
from PIL import Image

from kinspace import checks
from kinspace.data.pictures import BadPicture, Pictures

__all__ = ["Look", "look_at_all"]

THUMBNAIL = 16  # pixels a side
_WORTHWHILE = 15.0  # seconds of looking; starting processes takes about five of them
_CHUNK = 64  # pictures for a process at a time


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
        checks.whole("workers", workers, at_least=1)
    count = len(pictures)
    tell = progress or (lambda done, of: None)
    chunks = [range(start, min(start + _CHUNK, count)) for start in range(0, count, _CHUNK)]
    looks: list[Look | str] = []
    begun = time.monotonic()
    while chunks:
        if workers is None and looks:
            rest = (time.monotonic() - begun) / len(looks) * (count - len(looks))
            workers = _cores() if rest > _WORTHWHILE else 1
        if workers is not None and workers > 1:
            break
        looks += _look_at_some(chunks.pop(0), pictures)
        tell(len(looks), count)
    for some in _by_processes(pictures, chunks, workers or 1):
        looks += some
        tell(len(looks), count)
    return looks


def _by_processes(
    pictures: Pictures, chunks: Sequence[range], workers: int
) -> Iterator[list[Look | str]]:
    if not chunks:
        return
    # Not forked: the caller may have threads (torch does), and a fork would copy their locks.
    context = multiprocessing.get_context("spawn")
    try:
        with ProcessPoolExecutor(
            min(workers, len(chunks)), context, initializer=_take, initargs=(pictures,)
        ) as pool:
            yield from pool.map(_look_at_some, chunks)
    except BrokenProcessPool as error:
        raise RuntimeError(
            "the processes that look at the pictures ended early; in a script, check under "
            "`if __name__ == '__main__':`, or pass workers=1"
        ) from error


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


_taken: Pictures | None = None  # of a worker process: sent once, not with every chunk


def _take(pictures: Pictures) -> None:
    global _taken  # noqa: PLW0603
    _taken = pictures


def _look_at_some(indices: range, pictures: Pictures | None = None) -> list[Look | str]:
    pictures = pictures or _taken
    assert pictures is not None
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
