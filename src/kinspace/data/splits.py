"""Disjoint parts for training, validation and test.

A `Split` holds the whole data set and ONE number for each picture: the part it is in. No picture
can be in two parts, because it has one number; and where classes must not be shared, the number is
checked to be the same for all pictures of a class. Whatever is split again is split within its
part: `hold_out_classes(zero_shot(data).train, 0.2, seed=0)`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kinspace._core import checks
from kinspace._core.checks import first_few
from kinspace.data.dataset import Dataset

__all__ = [
    "Split",
    "class_folds",
    "hold_out_classes",
    "official",
    "random_classes",
    "stratified",
    "zero_shot",
]

PARTS = ("train", "validation", "test")
_TRAIN, _VALIDATION, _TEST = range(3)


@dataclass(frozen=True, eq=False)
class Split:
    """A data set in parts. `split.train`, `split.validation` and `split.test` are data sets.

    assignment: for each picture its part, 0 train, 1 validation, 2 test.
    shares_classes: whether a class may be in several parts.

    >>> from kinspace.data.in_memory import digits_dataset
    >>> split = Split(digits_dataset(), (digits_dataset().labels >= 5) * 2)
    >>> split.train.class_names, split.test.class_names
    (('0', '1', '2', '3', '4'), ('5', '6', '7', '8', '9'))
    >>> Split(digits_dataset(), torch.arange(1797) % 2)
    Traceback (most recent call last):
    ValueError: split: expected every class in one part, got 10 in several: '0', '1', ...
    """

    dataset: Dataset
    assignment: Tensor  # (pictures,), int64
    shares_classes: bool = False

    def __post_init__(self) -> None:
        count = len(self.dataset)
        if self.assignment.shape != (count,) or self.assignment.dtype != torch.int64:
            raise ValueError(
                f"assignment: expected int64 of shape ({count},), one for each picture, "
                f"got {self.assignment.dtype} {tuple(self.assignment.shape)}"
            )
        used = self.assignment.unique().tolist()
        if _TRAIN not in used or len(used) < 2 or not set(used) <= {_TRAIN, _VALIDATION, _TEST}:
            raise ValueError(
                "assignment: expected 0 (train) and at least one of 1 (validation) and 2 (test), "
                f"got {used}"
            )
        self._check_repeated_pictures()
        if not self.shares_classes:
            self._check_shared_classes()

    def _check_repeated_pictures(self) -> None:
        # a data set may have a picture twice (`subset([0, 0])`), but not in two parts
        part_of: dict[str, int] = {}
        for index, part in enumerate(self.assignment.tolist()):
            name = self.dataset.pictures.name(index)
            if part_of.setdefault(name, part) != part:
                raise ValueError(
                    f"split: expected every picture in one part, got {name!r} in several; "
                    "the data set holds it more than once"
                )

    def _check_shared_classes(self) -> None:
        low = torch.full((self.dataset.num_classes,), _TEST)
        low.scatter_reduce_(0, self.dataset.labels, self.assignment, "amin")
        mixed = self.dataset.labels[self.assignment != low[self.dataset.labels]].unique().tolist()
        if mixed:
            raise ValueError(
                f"split: expected every class in one part, got {len(mixed)} in several: "
                f"{first_few([self.dataset.class_names[c] for c in mixed])}; "
                "pass shares_classes=True to allow that"
            )

    @property
    def parts(self) -> tuple[str, ...]:
        """The names of the parts there are."""
        return tuple(PARTS[number] for number in self.assignment.unique().tolist())

    @property
    def train(self) -> Dataset:
        """The part to train on."""
        return self._part(_TRAIN)

    @property
    def validation(self) -> Dataset:
        """The part to select a model on; an error if there is none."""
        return self._part(_VALIDATION)

    @property
    def test(self) -> Dataset:
        """The part to report results on; an error if there is none."""
        return self._part(_TEST)

    def _part(self, number: int) -> Dataset:
        places = (self.assignment == number).nonzero().flatten()
        if not len(places):
            raise ValueError(
                f"split: has no {PARTS[number]} part; choose from: {', '.join(self.parts)}"
            )
        return self.dataset.subset(places)


def zero_shot(dataset: Dataset, *, validation: float = 0.0, seed: int = 0) -> Split:
    """The first half of the classes to train, the second to test, as the papers do.

    Of an odd number the larger half trains. validation: this fraction of the training classes,
    drawn by the seed, is the validation part.

    >>> from kinspace.data.in_memory import digits_dataset
    >>> zero_shot(digits_dataset()).test.class_names
    ('5', '6', '7', '8', '9')
    """
    classes = dataset.num_classes
    _at_least_classes(dataset, 2 if not validation else 3)
    half = (classes + 1) // 2
    part_of_class = torch.full((classes,), _TEST)
    part_of_class[:half] = _TRAIN
    if validation:
        part_of_class[_drawn(half, validation, seed, "validation")] = _VALIDATION
    return Split(dataset, part_of_class[dataset.labels])


def random_classes(dataset: Dataset, fraction: float = 0.5, *, seed: int) -> Split:
    """Whole classes, drawn by the seed, to test on: the given fraction of them.

    For classes in an order that means something, as by alphabet all cats before all dogs: the first
    half would train on one kind of thing and test on the other.

    >>> from kinspace.data.in_memory import digits_dataset
    >>> random_classes(digits_dataset(), seed=0).test.class_names
    ('1', '3', '4', '5', '7')
    """
    _at_least_classes(dataset, 2)
    part_of_class = torch.full((dataset.num_classes,), _TRAIN)
    part_of_class[_drawn(dataset.num_classes, fraction, seed, "fraction")] = _TEST
    return Split(dataset, part_of_class[dataset.labels])


def hold_out_classes(dataset: Dataset, fraction: float, *, seed: int) -> Split:
    """Whole classes held out for validation: the given fraction of them, at least one.

    >>> from kinspace.data.in_memory import digits_dataset
    >>> split = hold_out_classes(digits_dataset(), 0.2, seed=0)
    >>> split.train.num_classes, split.validation.num_classes
    (8, 2)
    """
    _at_least_classes(dataset, 2)
    part_of_class = torch.full((dataset.num_classes,), _TRAIN)
    part_of_class[_drawn(dataset.num_classes, fraction, seed, "fraction")] = _VALIDATION
    return Split(dataset, part_of_class[dataset.labels])


def class_folds(dataset: Dataset, folds: int, *, seed: int) -> tuple[Split, ...]:
    """As many splits as folds; every class is in the validation part of exactly one of them.

    >>> from kinspace.data.in_memory import digits_dataset
    >>> [split.validation.num_classes for split in class_folds(digits_dataset(), 4, seed=0)]
    [3, 3, 2, 2]
    """
    checks.integer("folds", folds, at_least=2)
    _at_least_classes(dataset, folds)
    order = torch.randperm(dataset.num_classes, generator=_generator(seed))
    fold_of_class = torch.empty_like(order)
    fold_of_class[order] = torch.arange(dataset.num_classes) % folds
    fold = fold_of_class[dataset.labels]
    return tuple(Split(dataset, (fold == number) * _VALIDATION) for number in range(folds))


def stratified(dataset: Dataset, fraction: float, *, seed: int) -> Split:
    """Pictures of every class to train and to test: the given fraction of each class tests.

    Every class with two pictures or more is in both parts; a class with one picture trains.

    >>> from kinspace.data.in_memory import digits_dataset
    >>> split = stratified(digits_dataset(), 0.25, seed=0)
    >>> len(split.train), len(split.test), split.test.num_classes
    (1347, 450, 10)
    """
    _fraction("fraction", fraction)
    dataset.require_labels("stratified")
    counts = dataset.labels.bincount()
    if int(counts.max()) < 2:
        raise ValueError(
            f"{dataset.name}: expected a class with two pictures or more to divide, "
            f"got {dataset.num_classes} classes of one picture"
        )
    tests = (counts * fraction).round().long().clamp(min=1).minimum(counts - 1)  # (classes,)
    shuffled = torch.randperm(len(dataset), generator=_generator(seed))
    order = shuffled[dataset.labels[shuffled].argsort(stable=True)]  # class after class
    starts = counts.cumsum(0) - counts
    labels = dataset.labels[order]
    place_in_class = torch.arange(len(dataset)) - starts[labels]
    assignment = torch.empty_like(dataset.labels)
    assignment[order] = (place_in_class < tests[labels]) * _TEST
    return Split(dataset, assignment, shares_classes=True)


def official(dataset: Dataset) -> Split:
    """The parts the data set came with: train, val, and the rest (test, query, gallery) to test.

    The test part keeps the names of the parts: `split.test.part("query")`.

    >>> from kinspace.data.in_memory import digits_dataset
    >>> official(digits_dataset())
    Traceback (most recent call last):
    ValueError: digits: has no official parts, such as folders train and test above those ...
    """
    dataset.require_labels("official")
    if dataset.parts is None:
        raise ValueError(
            f"{dataset.name}: has no official parts, such as folders train and test above those of "
            "the classes; take the split zero_shot, random_classes or stratified"
        )
    number = {"train": _TRAIN, "val": _VALIDATION}
    assignment = torch.tensor([number.get(part, _TEST) for part in dataset.parts])
    return Split(dataset, assignment, shares_classes=True)


def _drawn(count: int, fraction: float, seed: int, name: str) -> Tensor:
    """The given fraction of 0 .. count-1, at least one and not all, drawn by the seed."""
    _fraction(name, fraction)
    size = min(max(round(count * fraction), 1), count - 1)
    return torch.randperm(count, generator=_generator(seed))[:size]


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(checks.integer("seed", seed, at_least=0))


def _fraction(name: str, value: float) -> None:
    if not 0 < checks.number(name, value) < 1:
        raise ValueError(f"{name}: expected a number between 0 and 1, got {value!r}")


def _at_least_classes(dataset: Dataset, least: int) -> None:
    dataset.require_labels("a split")
    if dataset.num_classes < least:
        raise ValueError(
            f"{dataset.name}: expected at least {least} classes to divide, "
            f"got {dataset.num_classes}"
        )
