"""Read every picture of a data set, and list what is wrong with it, before training."""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import PurePosixPath

import numpy as np
from PIL import Image

from kinspace._core import checks
from kinspace._core.device import cpu_count
from kinspace.data.dataset import Dataset
from kinspace.data.duplicates import THUMBNAIL, find_groups
from kinspace.data.named_splits import split_problem
from kinspace.data.pictures import Pictures, UnreadablePicture, UnreadablePictures
from kinspace.data.process_pool import CHUNK, chunks, process_map

__all__ = [
    "CheckResult",
    "Duplicates",
    "PictureInfo",
    "Sizes",
    "UnreadableFile",
    "check",
    "drop_unreadable",
    "inspect_pictures",
    "require_readable",
]

_WORTHWHILE = 15.0  # seconds of reading; to start processes takes about five of them


@dataclass(frozen=True)
class UnreadableFile:
    """A picture that cannot be read."""

    index: int
    name: str
    label: str
    reason: str


@dataclass(frozen=True)
class Duplicates:
    """Pictures in several classes with the same content, or nearly the same."""

    exact: bool  # the same pixels
    names: tuple[str, ...]
    labels: tuple[str, ...]  # the class of each


@dataclass(frozen=True)
class Sizes:
    """Sizes as (width, height), by area; aspects as width / height."""

    smallest: tuple[int, int]
    median: tuple[int, int]
    largest: tuple[int, int]
    narrowest: float
    widest: float


@dataclass(frozen=True)
class CheckResult:
    """The result of `check`. Counts of classes and pictures are those of the good pictures.

    ok: no bad file, no picture in two classes, no class with fewer than two good pictures.
    """

    name: str
    pictures: int  # good and bad
    classes: int
    bad: tuple[UnreadableFile, ...]
    duplicates: tuple[Duplicates, ...] | None  # across classes; None: not searched for
    repeats: int | None  # pictures that a class, or a set without classes, has once more, or nearly
    singletons: tuple[str, ...]  # classes with one good picture
    emptied: tuple[str, ...]  # classes with none
    class_sizes: tuple[int, int, int] | None  # smallest, median, largest; None: no classes
    gini: (
        float  # of the class sizes: 0 for equal sizes, near 1 where few classes have most pictures
    )
    sizes: Sizes | None  # None: no good picture
    modes: dict[str, int]  # how pictures are stored: RGB, L, CMYK ...
    animated: int  # pictures with several frames; only the first counts
    nested: str | None = None  # a folder within a class folder, if there is one
    training: str | None = None  # why a training on the good pictures cannot be; None: it can

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        wrong = self.bad or self.duplicates or self.singletons or self.emptied or self.training
        return not wrong

    def to_json(self) -> str:
        """Everything, as JSON."""
        return json.dumps({"ok": self.ok, **asdict(self)}, ensure_ascii=False, indent=2)


def check(
    dataset: Dataset,
    *,
    duplicates: bool = True,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> CheckResult:
    """Decode every picture and list what is wrong.

    duplicates: whether to search for the same picture in several classes.
    workers: processes; by default this one alone, or one per CPU for sets that take long.
    progress: called with the number of pictures done and their total.

    >>> from kinspace.data.in_memory import digits_dataset
    >>> result = check(digits_dataset(), workers=1)
    >>> result.ok, result.class_sizes, result.modes
    (True, (174, 181, 183), {'L': 1797})
    """
    infos = inspect_pictures(dataset.pictures, workers=workers, progress=progress)
    names = dataset.class_names if dataset.labeled else ("",)  # of -1: the last
    labels = [names[label] for label in dataset.labels.tolist()]
    good = [index for index, info in enumerate(infos) if isinstance(info, PictureInfo)]
    seen = [info for info in infos if isinstance(info, PictureInfo)]
    across, repeats = _duplicates(dataset, labels, good, seen) if duplicates else (None, None)
    counts = Counter(labels[index] for index in good)
    sizes = sorted(counts[name] for name in dataset.class_names)
    return CheckResult(
        name=dataset.name,
        pictures=len(dataset),
        classes=dataset.num_classes,
        bad=tuple(
            UnreadableFile(index, dataset.pictures.name(index), labels[index], info)
            for index, info in enumerate(infos)
            if isinstance(info, str)
        ),
        duplicates=across,
        repeats=repeats,
        singletons=tuple(name for name in dataset.class_names if counts[name] == 1),
        emptied=tuple(name for name in dataset.class_names if not counts[name]),
        class_sizes=(sizes[0], sizes[len(sizes) // 2], sizes[-1]) if sizes else None,
        gini=_gini(sizes),
        sizes=_sizes(seen) if seen else None,
        modes=dict(Counter(info.mode for info in seen).most_common()),
        animated=sum(info.frames > 1 for info in seen),
        nested=_nested_folder(dataset, labels) if dataset.labeled else None,
        training=split_problem(dataset.subset(good)) if dataset.labeled and good else None,
    )


def _nested_folder(dataset: Dataset, labels: Sequence[str]) -> str | None:
    """The first folder below the folder of a class, as photos/cats/birman/1.jpg has."""
    for index, label in enumerate(labels):
        folders = PurePosixPath(dataset.pictures.name(index)).parts[:-1]
        if label in folders[:-1]:
            return "/".join(folders[: folders.index(label) + 2])
    return None


def drop_unreadable(dataset: Dataset, found: CheckResult | UnreadablePictures) -> Dataset:
    """The data set without its bad files, and without classes that have no good picture.

    found: the result of `check`, or the error that `cache_in_memory` or `cache_on_disk` raised.

    >>> from kinspace.data.in_memory import digits_dataset
    >>> digits = digits_dataset()
    >>> error = UnreadablePictures({3: UnreadablePicture("digit 3", "smudged")}, 1797)
    >>> len(drop_unreadable(digits, error))
    1796
    """
    error = _bad_pictures(dataset, found)
    if len(error.bad) == len(dataset):
        raise ValueError(
            f"{dataset.name}: expected a picture that can be read, got none; the first is "
            f"{error.bad[0]}"
        )
    if not error.bad:
        return dataset
    return dataset.subset([index for index in range(len(dataset)) if index not in error.bad])


def require_readable(dataset: Dataset, result: CheckResult) -> None:
    """Raise `UnreadablePictures`, which lists them, if the data set has bad files.

    >>> from kinspace.data.in_memory import digits_dataset
    >>> digits = digits_dataset()
    >>> require_readable(digits, check(digits, duplicates=False, workers=1))
    """
    error = _bad_pictures(dataset, result)
    if error.bad:
        raise error


def _bad_pictures(dataset: Dataset, found: CheckResult | UnreadablePictures) -> UnreadablePictures:
    """The bad pictures, after a check that they are of this data set."""
    if isinstance(found, CheckResult):
        bad = {file.index: UnreadablePicture(file.name, file.reason) for file in found.bad}
        found = UnreadablePictures(bad, found.pictures)
    names = {index: error.name for index, error in found.bad.items()}
    if found.total != len(dataset) or any(
        dataset.pictures.name(index) != name for index, name in names.items()
    ):
        raise ValueError(
            f"expected a result for these {len(dataset)} pictures of {dataset.name!r}, "
            f"got one for {found.total} others; check this data set"
        )
    return found


@dataclass(frozen=True)
class PictureInfo:
    """One decoded picture: its size, how the file stores it, and a digest of its content."""

    width: int
    height: int
    mode: str
    frames: int
    digest: bytes  # the same for the same pixels
    thumbnail: bytes  # (THUMBNAIL, THUMBNAIL, 3), 8 bit


def inspect_pictures(
    pictures: Pictures,
    *,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[PictureInfo | str]:
    """The size, mode and digest of each picture, or the reason why it cannot be read.

    workers: processes; by default this one alone, or one per CPU for sets that take long.
    progress: called with the number of pictures done and their total.

    >>> from kinspace.data.pictures import ArrayPictures
    >>> infos = inspect_pictures(ArrayPictures(np.zeros((2, 8, 9), np.uint8)))
    >>> infos[0].width, infos[0].mode, infos[0] == infos[1]
    (9, 'L', True)
    """
    if workers is not None:
        checks.integer("workers", workers, at_least=1)
    count = len(pictures)
    report = progress or (lambda done, total: None)
    task = partial(_inspect_chunk, pictures)
    infos: list[PictureInfo | str] = []
    start = time.monotonic()
    while len(infos) < count and workers in (None, 1):
        infos += task(range(len(infos), min(len(infos) + CHUNK, count)))
        report(len(infos), count)
        if workers is None:
            rest = (time.monotonic() - start) / len(infos) * (count - len(infos))
            workers = cpu_count() if rest > _WORTHWHILE else 1
    workers = workers or 1
    parts = chunks(len(infos), count, workers)
    for part in process_map(task, parts, workers, what="read the pictures"):
        infos += part
        report(len(infos), count)
    return infos


def _inspect_chunk(pictures: Pictures, indices: range) -> list[PictureInfo | str]:
    return [_inspect(pictures, index) for index in indices]


def _inspect(pictures: Pictures, index: int) -> PictureInfo | str:
    try:
        picture = pictures.read(index)
    except UnreadablePicture as bad:
        return bad.reason
    pixels = np.asarray(picture)
    digest = hashlib.blake2b(str(picture.size).encode(), digest_size=16)
    digest.update(pixels.data)
    small = picture.resize((THUMBNAIL, THUMBNAIL), Image.Resampling.BOX)
    mode = str(picture.info.get("mode", picture.mode))
    frames = int(picture.info.get("frames", 1))
    return PictureInfo(*picture.size, mode, frames, digest.digest(), small.tobytes())


def _duplicates(
    dataset: Dataset, labels: Sequence[str], good: Sequence[int], infos: Sequence[PictureInfo]
) -> tuple[tuple[Duplicates, ...], int]:
    """Groups across classes, and how many pictures repeat another of their class."""
    raw = np.frombuffer(b"".join(info.thumbnail for info in infos), np.uint8)
    thumbnails = raw.reshape(-1, THUMBNAIL, THUMBNAIL, 3)
    across: list[Duplicates] = []
    repeats = 0
    for group in find_groups([info.digest for info in infos], thumbnails):
        names = tuple(dataset.pictures.name(good[place]) for place in group)
        classes = tuple(labels[good[place]] for place in group)
        repeats += len(group) - len(set(classes))
        if len(set(classes)) > 1:
            exact = len({infos[place].digest for place in group}) == 1
            across.append(Duplicates(exact, names, classes))
    return tuple(across), repeats


def _gini(sizes: Sequence[int]) -> float:
    """The Gini coefficient of numbers in rising order.

    >>> _gini([5, 5]), _gini([0, 10])
    (0.0, 0.5)
    """
    total = sum(sizes)
    ranks = sum(rank * size for rank, size in enumerate(sizes, 1))
    return 2 * ranks / (len(sizes) * total) - (len(sizes) + 1) / len(sizes) if total else 0.0


def _sizes(infos: Sequence[PictureInfo]) -> Sizes:
    sizes = sorted(((info.width, info.height) for info in infos), key=lambda s: (s[0] * s[1], s))
    aspects = [width / height for width, height in sizes]
    return Sizes(
        smallest=sizes[0],
        median=sizes[len(sizes) // 2],
        largest=sizes[-1],
        narrowest=min(aspects),
        widest=max(aspects),
    )
