"""Decode all pictures of a set into one array, by as many processes as are wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from kinspace._core import checks
from kinspace.data.pictures import Pictures
from kinspace.data.process_pool import chunks, cores, in_processes
from kinspace.data.transforms import Square
from kinspace.data.unreadable import BadPicture, BadPictures

__all__ = ["Progress", "decode_squares"]

Progress = Callable[[int, int], None]  # pictures done, pictures in all
_FEW = 500  # pictures; for fewer, starting processes takes longer than reading


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

    >>> import torch
    >>> from kinspace.data.pictures import ArrayPictures
    >>> target = torch.empty(1, 3, 2, 2, dtype=torch.uint8)
    >>> decode_squares(target, ArrayPictures(np.full((1, 8, 8), 7, np.uint8)), Square(2))
    >>> target.unique()
    tensor([7], dtype=torch.uint8)
    """
    total = len(pictures)
    if workers is None:
        workers = cores() if total > _FEW else 1
    checks.integer("workers", workers, at_least=1)
    task = partial(_write, target, pictures, square)
    written: Iterator[tuple[int, dict[int, BadPicture]]]
    if workers == 1:
        written = (task(range(place, place + 1)) for place in range(total))
    else:
        written = in_processes(task, chunks(0, total, workers), workers, what="read pictures")
    bad: dict[int, BadPicture] = {}
    done = 0
    for count, found in written:
        done += count
        bad.update(found)
        if progress is not None:
            progress(done, total)
    if bad:
        raise BadPictures(bad, total)


def _write(
    target: Tensor | Path, pictures: Pictures, square: Square, places: range
) -> tuple[int, dict[int, BadPicture]]:
    """How many pictures were dealt with, and the bad ones among them."""
    rows: NDArray[np.uint8]
    rows = np.load(target, mmap_mode="r+") if isinstance(target, Path) else target.numpy()
    bad = {}
    for place in places:
        try:
            picture = square(pictures.read(place))
        except BadPicture as error:
            bad[place] = error
        else:
            rows[place] = np.asarray(picture).transpose(2, 0, 1)
    return len(places), bad
