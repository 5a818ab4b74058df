"""Decoded pictures: uint8 (pictures, 3, resize, resize), in memory, on disk or on the GPU.

Decoding is most of a loader's work and the same in every epoch. A cache holds the squares that
`kinspace.data.transforms.Square` makes; the random part of a transform is done on them, a batch at
a time (`kinspace.data.dataloader.CachedLoader`). CUB's 11,788 pictures at 256 pixels take 2.3 GB.

On disk a cache is a folder: `pictures.npy`, which is mapped, not read, and `header.json`, which
identifies the pictures and settings. It is written completely or not at all, and never overwritten:
where the pictures have changed (names, sizes and times of files; the content of arrays), or resize
or fit differ, opening it is an error.

A cache holds all pictures of its data set. Making it reads every picture, so that one error lists
all unreadable ones before training starts. The parts of a split share one cache of the whole set:

    cache = cache_in_memory(data, settings)
    split = zero_shot(data)
    train, test = cache.part(split.train, data), cache.part(split.test, data)
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kinspace._core import checks
from kinspace._core.atomic_files import to_disk
from kinspace._core.device import cpu_count
from kinspace.data.dataset import Dataset
from kinspace.data.pictures import (
    FilePictures,
    Pictures,
    PictureSubset,
    UnreadablePicture,
    UnreadablePictures,
    fingerprint,
)
from kinspace.data.process_pool import chunks, process_map
from kinspace.data.transforms import Square, TransformSettings

__all__ = ["PictureCache", "Progress", "cache_in_memory", "cache_on_disk", "decode_squares"]

Progress = Callable[[int, int], None]  # pictures done, pictures in all
_FORMAT = 1
_SHARED_MEMORY = Path("/dev/shm")
_FEW = 500  # pictures; for fewer, starting processes takes longer than reading
_FEW_FILES = 2000  # in files, which threads can read: Pillow decodes and resizes without the GIL


@dataclass(frozen=True, eq=False)
class PictureCache:
    """The squares of a data set and its labels, made by `cache_in_memory` or `cache_on_disk`.

    Passed to another process, a cache shares its memory: nothing is copied.

    >>> from kinspace.data.in_memory import digits_dataset
    >>> digits = digits_dataset()
    >>> cache = cache_in_memory(digits, TransformSettings(size=7, resize=8), workers=1)
    >>> part = cache.part(digits.subset([2, 22, 1]), digits)
    >>> len(part), len(part.pictures), bool((part.squares([0]) == cache.squares([2])).all())
    (3, 1797, True)
    """

    pictures: Tensor  # uint8 (squares, 3, resize, resize); a part has those of the whole set
    labels: Tensor  # (pictures,)
    fit: str
    folder: Path | None = None
    rows: Tensor | None = None  # (pictures,) where the squares of a part are; None: all, in order

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def resize(self) -> int:
        """The side of the squares."""
        return self.pictures.shape[-1]

    def to(self, device: str | torch.device) -> PictureCache:
        """The same cache in the memory of a device, `cache.to("cuda")`, where it fits."""
        device = torch.empty(0, device=device).device  # "cuda" is the current one, "cuda:0"
        if device == self.pictures.device:
            return self
        squares = self.pictures if self.rows is None else self.squares(range(len(self)))
        return PictureCache(squares.to(device), self.labels.to(device), self.fit)

    def part(self, part: Dataset, whole: Dataset) -> PictureCache:
        """The cache of a part of `whole`, the data set that this cache is of. Copies no square."""
        if len(whole) != len(self):
            raise ValueError(
                f"whole: expected the data set of this cache, {len(self)} pictures, "
                f"got {len(whole)}"
            )
        rows = self.rows_of(part.indices_in(whole))
        return replace(self, labels=part.labels.to(self.labels.device), rows=rows)

    def rows_of(self, places: Tensor) -> Tensor:
        """The rows of these pictures in `pictures`, on the CPU."""
        return places if self.rows is None else self.rows[places]

    def squares(self, places: Sequence[int] | Tensor) -> Tensor:
        """A copy of the squares of these pictures: uint8 (indices, 3, side, side)."""
        rows = self.rows_of(torch.as_tensor(places, dtype=torch.int64))
        return self.pictures.index_select(0, rows.to(self.pictures.device))

    def __reduce__(self) -> tuple[Any, ...]:
        if self.folder is not None:  # the other process maps the file instead of receiving a copy
            return _mapped, (self.folder, self.labels, self.fit, self.rows)
        return PictureCache, (self.pictures, self.labels, self.fit, None, self.rows)


def cache_in_memory(
    dataset: Dataset,
    settings: TransformSettings,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> PictureCache:
    """Decode all pictures into shared memory. `UnreadablePictures` lists those that cannot be read.

    workers: processes to read with; 1 reads in this one. By default one per CPU for large sets.

    >>> from kinspace.data.dataset import from_names
    >>> from kinspace.data.pictures import ArrayPictures
    >>> dataset = from_names(ArrayPictures(np.zeros((3, 8, 8), np.uint8)), ["io", "luna", "io"])
    >>> cache_in_memory(dataset, TransformSettings(size=7, resize=8)).pictures.shape
    torch.Size([3, 3, 8, 8])
    """
    shape = (len(dataset), 3, settings.resize, settings.resize)
    _check_shared_memory(int(np.prod(shape)))
    pictures = torch.empty(shape, dtype=torch.uint8).share_memory_()
    square = Square(settings.resize, settings.fit)
    decode_squares(pictures, dataset.pictures, square, workers=workers, progress=progress)
    return PictureCache(pictures, dataset.labels, settings.fit)


def cache_on_disk(
    dataset: Dataset,
    folder: str | Path,
    settings: TransformSettings,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> PictureCache:
    """Open the cache in `folder`; make it first if there is none.

    A cache of other pictures or settings raises a ValueError that lists the differences.

    >>> from kinspace.data.dataset import from_names
    >>> from kinspace.data.pictures import ArrayPictures
    >>> dataset = from_names(ArrayPictures(np.zeros((3, 8, 8), np.uint8)), ["io", "luna", "io"])
    >>> settings = TransformSettings(size=7, resize=8)
    >>> with tempfile.TemporaryDirectory() as parent:
    ...     made = cache_on_disk(dataset, f"{parent}/moths", settings)
    ...     opened = cache_on_disk(dataset, f"{parent}/moths", settings)
    >>> bool((made.pictures == opened.pictures).all())
    True
    """
    folder = Path(folder)
    header = {
        "kinspace cache": _FORMAT,
        "pictures": len(dataset),
        "resize": settings.resize,
        "fit": settings.fit,
        "fingerprint": fingerprint(dataset.pictures),
    }
    if not folder.exists():
        _make(folder, header, dataset.pictures, workers, progress)
    _check_header(folder, header)
    return _mapped(folder, dataset.labels, settings.fit)


def _mapped(folder: Path, labels: Tensor, fit: str, rows: Tensor | None = None) -> PictureCache:
    # mapped copy-on-write: torch warns of memory it may not write to, and the file stays as it is
    pictures = np.load(folder / "pictures.npy", mmap_mode="c")
    return PictureCache(torch.from_numpy(pictures), labels, fit, folder, rows)


def _check_header(folder: Path, expected: dict[str, Any]) -> None:
    advice = f"remove {folder} to make it again, or name another folder"
    try:
        found = dict(json.loads((folder / "header.json").read_text()))
        length = (folder / "pictures.npy").stat().st_size
    except (OSError, ValueError, TypeError) as error:
        raise ValueError(f"{folder}: expected a picture cache, got {error}; {advice}") from None
    pixels = 3 * expected["resize"] ** 2 * expected["pictures"]
    differ = [
        f"{key} {found.get(key)} (expected {value})"
        for key, value in expected.items()
        if found.get(key) != value
    ]
    if not differ and length < pixels:
        differ = [f"{length} bytes (expected over {pixels})"]
    if differ:
        raise ValueError(
            f"{folder}: is a cache of other pictures or settings: {', '.join(differ)}; {advice}"
        )


def _make(
    folder: Path,
    header: dict[str, Any],
    pictures: Pictures,
    workers: int | None,
    progress: Progress | None,
) -> None:
    """Fill a temporary folder beside the final one, flush it to disk, then rename it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.", suffix=".part"))
    try:
        file = part / "pictures.npy"
        shape = (header["pictures"], 3, header["resize"], header["resize"])
        np.lib.format.open_memmap(file, mode="w+", dtype=np.uint8, shape=shape)
        if hasattr(
            os, "posix_fallocate"
        ):  # a full disk is an error here, but a crash in mapped memory
            with file.open("r+b") as stream:
                os.posix_fallocate(stream.fileno(), 0, file.stat().st_size)
        square = Square(header["resize"], header["fit"])
        decode_squares(file, pictures, square, workers=workers, progress=progress)
        (part / "header.json").write_text(json.dumps(header, indent=1) + "\n")
        for path in (file, part / "header.json", part):
            to_disk(path)
        part.chmod(0o777 & ~_umask())  # others may not read a temporary folder
        try:
            part.rename(folder)
        except OSError:
            if not folder.exists():  # otherwise another process has made the same cache first
                raise
        to_disk(folder.parent)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _check_shared_memory(needed: int) -> None:
    """Check the limit: beyond it the first write would kill the process without a message."""
    free = shutil.disk_usage(_SHARED_MEMORY).free if _SHARED_MEMORY.exists() else needed
    if needed > free:
        raise ValueError(
            f"the cache: expected {needed / 1e9:.2f} GB of shared memory, got {free / 1e9:.2f} GB "
            f"free in {_SHARED_MEMORY}; give it more (docker: --shm-size), cache on disk, or "
            "choose a smaller resize"
        )


def decode_squares(
    target: Tensor | Path,
    pictures: Pictures,
    square: Square,
    *,
    workers: int | None = None,
    progress: Progress | None = None,
) -> None:
    """Write the square of each picture to its row of `target`; raise at the end if some are bad.

    target: uint8 (pictures, 3, resize, resize), or a .npy file of that. With several workers a
        tensor has to be in shared memory.
    workers: processes; by default one per CPU. Few pictures are read by this one alone, those in
        files by threads.

    >>> import torch
    >>> from kinspace.data.pictures import ArrayPictures
    >>> target = torch.empty(1, 3, 2, 2, dtype=torch.uint8)
    >>> decode_squares(target, ArrayPictures(np.full((1, 8, 8), 7, np.uint8)), Square(2))
    >>> target.unique()
    tensor([7], dtype=torch.uint8)
    """
    total = len(pictures)
    threads = workers is None and total <= _FEW_FILES and _in_files(pictures)
    if workers is None:
        workers = cpu_count() if threads or total > _FEW else 1
    checks.integer("workers", workers, at_least=1)
    task = partial(_write, target, pictures, square)
    written: Iterator[tuple[int, dict[int, UnreadablePicture]]]
    if workers > 1 and threads:
        written = _in_threads(task, [range(at, at + 1) for at in range(total)], workers)
    elif workers == 1:
        written = (task(range(place, place + 1)) for place in range(total))
    else:
        written = process_map(task, chunks(0, total, workers), workers, what="read pictures")
    bad: dict[int, UnreadablePicture] = {}
    done = 0
    for count, found in written:
        done += count
        bad.update(found)
        if progress is not None:
            progress(done, total)
    if bad:
        raise UnreadablePictures(bad, total)


def _in_files(pictures: Pictures) -> bool:
    while isinstance(pictures, PictureSubset):
        pictures = pictures.whole
    return isinstance(pictures, FilePictures)


def _in_threads(
    task: Callable[[range], tuple[int, dict[int, UnreadablePicture]]],
    parts: Sequence[range],
    count: int,
) -> Iterator[tuple[int, dict[int, UnreadablePicture]]]:
    with ThreadPoolExecutor(count) as pool:
        yield from pool.map(task, parts)


def _write(
    target: Tensor | Path, pictures: Pictures, square: Square, places: range
) -> tuple[int, dict[int, UnreadablePicture]]:
    """The number of pictures processed, and the bad ones among them."""
    rows: NDArray[np.uint8]
    rows = np.load(target, mmap_mode="r+") if isinstance(target, Path) else target.numpy()
    bad = {}
    for place in places:
        try:
            picture = square(pictures.read(place))
        except UnreadablePicture as error:
            bad[place] = error
        else:
            rows[place] = np.asarray(picture).transpose(2, 0, 1)
    return len(places), bad
