"""Decode all pictures of a set into one array, by as many processes as are wanted."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.context import BaseContext
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, multiprocessing

from kinspace import checks
from kinspace.data.pictures import BadPicture, Pictures
from kinspace.data.transforms import Square

__all__ = ["BadPictures", "Progress", "decode_squares"]

Progress = Callable[[int, int], None]  # pictures done, pictures in all
_FEW = 500  # pictures; for fewer, starting processes takes longer than reading
_LISTED = 20  # bad pictures named in the error; the rest is counted


class BadPictures(ValueError):
    """The pictures of a data set that cannot be read. bad: all of them, by their index.

    >>> print(BadPictures({3: BadPicture("note.jpg", "empty file")}, 8))
    1 of 8 pictures cannot be read:
      note.jpg: empty file
    """

    def __init__(self, bad: dict[int, BadPicture], total: int) -> None:
        lines = [f"  {error}" for error in list(bad.values())[:_LISTED]]
        if len(bad) > _LISTED:
            lines.append(f"  and {len(bad) - _LISTED} more")
        listed = "\n".join(lines)
        super().__init__(f"{len(bad)} of {total} pictures cannot be read:\n{listed}")
        self.bad = bad
        self.total = total

    def __reduce__(self) -> tuple[type[BadPictures], tuple[dict[int, BadPicture], int]]:
        return BadPictures, (self.bad, self.total)


def decode_squares(
    target: Tensor | Path,
    pictures: Pictures,
    square: Square,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> None:
    """Write the square of each picture to its row of `target`; then raise if some were bad.

    target: uint8 (pictures, 3, resize, resize), or a .npy file of that. With several workers a
        tensor has to be in shared memory.
    workers: processes; by default one a core, or none but this one for few pictures.

    >>> from kinspace.data.pictures import ArrayPictures
    >>> target = torch.empty(1, 3, 2, 2, dtype=torch.uint8)
    >>> decode_squares(target, ArrayPictures(np.full((1, 8, 8), 7, np.uint8)), Square(2))
    >>> target.unique()
    tensor([7], dtype=torch.uint8)
    """
    total = len(pictures)
    if workers is None:
        workers = _cores() if total > _FEW else 1
    checks.whole("workers", workers, at_least=1)
    bad = {}
    if workers == 1:
        for place, error in _write(target, pictures, square, range(total)):
            if error is not None:
                bad[place] = error
            if progress is not None:
                progress(place + 1, total)
    else:
        bad = _by_processes(target, pictures, square, min(workers, total), progress)
    if bad:
        raise BadPictures(bad, total)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _write(
    target: Tensor | Path, pictures: Pictures, square: Square, places: range
) -> Iterator[tuple[int, BadPicture | None]]:
    rows: NDArray[np.uint8]
    rows = np.load(target, mmap_mode="r+") if isinstance(target, Path) else target.numpy()
    for place in places:
        try:
            picture = square(pictures.read(place))
        except BadPicture as error:
            yield place, error
        else:
            rows[place] = np.asarray(picture).transpose(2, 0, 1)
            yield place, None


def _write_part(
    target: Tensor | Path,
    pictures: Pictures,
    square: Square,
    places: range,
    done: Tensor,
) -> dict[int, BadPicture]:
    bad = {}
    for place, error in _write(target, pictures, square, places):
        if error is not None:
            bad[place] = error
        done += 1
    return bad


def _context() -> BaseContext:
    # Not forked: the caller may have threads (torch does), and a fork would copy their locks.
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    # torch and torchvision are imported once, by a process from which the workers are forked
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    return context


def _by_processes(
    target: Tensor | Path,
    pictures: Pictures,
    square: Square,
    workers: int,
    progress: Progress | None,
) -> dict[int, BadPicture]:
    """One run of neighbors a process (a packed archive is read in order), straight to its place."""
    total = len(pictures)
    bounds = np.linspace(0, total, workers + 1).astype(int).tolist()
    done = torch.zeros(workers, dtype=torch.int64).share_memory_()
    try:
        with ProcessPoolExecutor(workers, mp_context=_context()) as pool:
            running = {
                pool.submit(
                    _write_part, target, pictures, square, range(*bounds[i : i + 2]), done[i]
                )
                for i in range(workers)
            }
            waiting = running
            while waiting:
                _, waiting = wait(waiting, timeout=0.2, return_when=FIRST_EXCEPTION)
                if progress is not None:
                    progress(int(done.sum()), total)
            found = [part.result() for part in running]
    except BrokenProcessPool as error:
        raise RuntimeError(
            "the processes that read pictures ended early; in a script, make the cache under "
            "`if __name__ == '__main__':`, or pass workers=1"
        ) from error
    return dict(sorted(item for part in found for item in part.items()))
