"""Look at every picture of a data set before anything is trained on it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

import numpy as np

from kinspace.data.dataset import Dataset
from kinspace.data.duplicates import find_groups
from kinspace.data.inspection import THUMBNAIL, Look, look_at_all
from kinspace.data.unreadable import BadPicture, BadPictures

__all__ = ["BadFile", "CheckResult", "Duplicates", "Sizes", "check", "require_good", "usable"]


@dataclass(frozen=True)
class BadFile:
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
    """What the check found. Counts of classes and pictures are those of the good pictures.

    ok: no bad file, no picture in two classes, no class with fewer than two good pictures.
    """

    name: str
    pictures: int  # good and bad
    classes: int
    bad: tuple[BadFile, ...]
    duplicates: tuple[Duplicates, ...] | None  # across classes; None: not looked for
    repeats: int | None  # pictures that a class holds once more, or nearly
    singletons: tuple[str, ...]  # classes with one good picture
    emptied: tuple[str, ...]  # classes with none
    class_sizes: tuple[int, int, int]  # smallest, median, largest
    gini: float  # of the class sizes: 0 all alike, near 1 a few hold everything
    sizes: Sizes | None  # None: no good picture
    modes: dict[str, int]  # how pictures are stored: RGB, L, CMYK ...
    animated: int  # pictures with several frames; only the first counts

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not (self.bad or self.duplicates or self.singletons or self.emptied)

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

    duplicates: whether to look for the same picture in several classes.
    workers: processes; by default this one, or one a core if that would take long.
    progress: called with the pictures done and all of them.

    >>> from kinspace.data.digits import digits_dataset
    >>> result = check(digits_dataset(), workers=1)
    >>> result.ok, result.class_sizes, result.modes
    (True, (174, 181, 183), {'L': 1797})
    """
    looks = look_at_all(dataset.pictures, workers=workers, progress=progress)
    labels = [dataset.class_names[label] for label in dataset.labels.tolist()]
    good = [index for index, look in enumerate(looks) if isinstance(look, Look)]
    seen = [look for look in looks if isinstance(look, Look)]
    across, repeats = _duplicates(dataset, labels, good, seen) if duplicates else (None, None)
    counts = Counter(labels[index] for index in good)
    sizes = sorted(counts[name] for name in dataset.class_names)
    return CheckResult(
        name=dataset.name,
        pictures=len(dataset),
        classes=dataset.num_classes,
        bad=tuple(
            BadFile(index, dataset.pictures.name(index), labels[index], look)
            for index, look in enumerate(looks)
            if isinstance(look, str)
        ),
        duplicates=across,
        repeats=repeats,
        singletons=tuple(name for name in dataset.class_names if counts[name] == 1),
        emptied=tuple(name for name in dataset.class_names if not counts[name]),
        class_sizes=(sizes[0], sizes[len(sizes) // 2], sizes[-1]),
        gini=_gini(sizes),
        sizes=_sizes(seen) if seen else None,
        modes=dict(Counter(look.mode for look in seen).most_common()),
        animated=sum(look.frames > 1 for look in seen),
    )


def usable(dataset: Dataset, found: CheckResult | BadPictures) -> Dataset:
    """The data set without its bad files. Classes with no good picture are gone with them.

    found: what `check` returned, or what the making of a cache raised.

    >>> from kinspace.data.digits import digits_dataset
    >>> digits = digits_dataset()
    >>> len(usable(digits, BadPictures({3: BadPicture("digit 3", "smudged")}, 1797)))
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


def require_good(dataset: Dataset, result: CheckResult) -> None:
    """Stop with the list, `BadPictures`, if the data set has bad files.

    >>> from kinspace.data.digits import digits_dataset
    >>> digits = digits_dataset()
    >>> require_good(digits, check(digits, duplicates=False, workers=1))
    """
    error = _bad_pictures(dataset, result)
    if error.bad:
        raise error


def _bad_pictures(dataset: Dataset, found: CheckResult | BadPictures) -> BadPictures:
    """What was found, made sure to be of this data set."""
    if isinstance(found, CheckResult):
        bad = {file.index: BadPicture(file.name, file.reason) for file in found.bad}
        found = BadPictures(bad, found.pictures)
    names = {index: error.name for index, error in found.bad.items()}
    if found.total != len(dataset) or any(
        dataset.pictures.name(index) != name for index, name in names.items()
    ):
        raise ValueError(
            f"expected what was found in these {len(dataset)} pictures of {dataset.name!r}, "
            f"got that of {found.total} others; check this data set"
        )
    return found


def _duplicates(
    dataset: Dataset, labels: Sequence[str], good: Sequence[int], looks: Sequence[Look]
) -> tuple[tuple[Duplicates, ...], int]:
    """Groups across classes, and how many pictures repeat another of their class."""
    raw = np.frombuffer(b"".join(look.thumbnail for look in looks), np.uint8)
    thumbnails = raw.reshape(-1, THUMBNAIL, THUMBNAIL, 3)
    across: list[Duplicates] = []
    repeats = 0
    for group in find_groups([look.digest for look in looks], thumbnails):
        names = tuple(dataset.pictures.name(good[place]) for place in group)
        classes = tuple(labels[good[place]] for place in group)
        repeats += len(group) - len(set(classes))
        if len(set(classes)) > 1:
            exact = len({looks[place].digest for place in group}) == 1
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


def _sizes(looks: Sequence[Look]) -> Sizes:
    sizes = sorted(((look.width, look.height) for look in looks), key=lambda s: (s[0] * s[1], s))
    aspects = [width / height for width, height in sizes]
    return Sizes(
        smallest=sizes[0],
        median=sizes[len(sizes) // 2],
        largest=sizes[-1],
        narrowest=min(aspects),
        widest=max(aspects),
    )
