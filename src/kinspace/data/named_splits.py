"""Splits by their names, as recipes and the command line say them, and what makes one unusable."""

from __future__ import annotations

import torch
from torch import Tensor

from kinspace._core.checks import plural
from kinspace.data.dataset import Dataset
from kinspace.data.splits import (
    Split,
    hold_out_classes,
    official,
    random_classes,
    stratified,
    zero_shot,
)

__all__ = ["SPLITS", "require_trainable", "split_for", "split_names", "split_problem"]

SPLITS = ("auto", "random_classes", "zero_shot", "official", "stratified", "all")
TEST_FRACTION = 0.25  # of each class's pictures, in a stratified split
FEWEST = 2  # classes with two pictures or more, in each part


def split_for(dataset: Dataset, name: str) -> str:
    """The split that "auto" stands for; any other as it is.

    >>> from kinspace.data import digits_dataset
    >>> split_for(digits_dataset(), "auto"), split_for(digits_dataset(), "all")
    ('zero_shot', 'all')
    """
    if name != "auto":
        return name
    if not dataset.standard:
        return "random_classes"
    return "official" if _has_classes_to_test(dataset) else "zero_shot"


def _has_classes_to_test(dataset: Dataset) -> bool:
    """Whether the official parts test on classes of their own, other than the second half.

    So it is with Stanford Online Products, In-Shop Clothes and Omniglot: half of their classes are
    not the published training classes.
    """
    if dataset.parts is None or dataset.num_classes < 2:
        return False
    trains = torch.tensor([part in ("train", "val") for part in dataset.parts])
    trained, tested = dataset.labels[trains].unique(), dataset.labels[~trains].unique()
    if not len(trained) or not len(tested) or bool(torch.isin(trained, tested).any()):
        return False
    first_half = list(range((dataset.num_classes + 1) // 2))
    return bool(trained.tolist() != first_half)


def split_names(
    dataset: Dataset, name: str, *, validation: float, seed: int
) -> tuple[Dataset, Dataset | None, Dataset | None]:
    """The train, validation (or None) and test (or None) part, by the name of a split.

    zero_shot: train on the first half of the classes, test on the others. random_classes: the same
    with classes drawn by the seed. official: the parts of the data set. stratified: test on a
    quarter of each class's pictures. all: no test part. The validation classes are a fraction of
    the training classes, at least two of them.

    >>> from kinspace.data import digits_dataset
    >>> parts = split_names(digits_dataset(), "zero_shot", validation=0.4, seed=0)
    >>> [part.num_classes for part in parts]
    [3, 2, 5]
    """
    test: Dataset | None = None
    train, name = dataset, split_for(dataset, name)
    if name == "zero_shot":
        train, test = _both(zero_shot(dataset))
    elif name == "random_classes":
        train, test = _both(random_classes(dataset, seed=seed))
    elif name == "official":
        train, test = _both(official(dataset))
    elif name == "stratified":
        train, test = _both(stratified(dataset, TEST_FRACTION, seed=seed))
    elif name != "all":
        raise ValueError(f"split: expected one of {', '.join(SPLITS)}, got {name!r}")
    if not validation or train.num_classes < 4:
        return train, None, test
    fraction = max(validation, 2 / train.num_classes)
    inner = hold_out_classes(train, fraction, seed=seed)
    return inner.train, inner.validation, test


def _both(split: Split) -> tuple[Dataset, Dataset]:
    return split.train, split.test


def split_problem(dataset: Dataset, name: str = "auto", *, seed: int = 0) -> str | None:
    """Why a training cannot learn or be judged on this data with a split; None where it can.

    A loss compares pictures of a class with each other and with those of another class, and so do
    the measures: each part needs two classes with two pictures or more.

    >>> from kinspace.data import digits_dataset
    >>> digits = digits_dataset()
    >>> split_problem(digits) is None
    True
    >>> split_problem(digits.subset((digits.labels == 3).nonzero().flatten()))
    'digits: training needs pictures of at least 2 classes, got 1 class; ...'
    """
    where = dataset.name
    if dataset.num_classes < FEWEST:
        return (
            f"{where}: training needs pictures of at least {FEWEST} classes, got "
            f"{plural(dataset.num_classes, 'class', 'classes')}; put the pictures of each kind "
            "into a folder of its own; search needs no classes: kinspace index --backbone NAME DATA"
        )
    several = _comparable(dataset.labels)
    if several < FEWEST:
        return (
            f"{where}: training needs at least {FEWEST} classes with 2 pictures or more, got "
            f"{several} of {plural(dataset.num_classes, 'class', 'classes')}; add pictures"
        )
    try:
        train, _, test = split_names(dataset, name, validation=0.0, seed=seed)
    except ValueError as error:
        return str(error)
    parts = {"to train on": train, "for the test": test}
    counts = {part: _comparable(data.labels) for part, data in parts.items() if data is not None}
    if all(count >= FEWEST for count in counts.values()):
        return None
    found = " and ".join(f"{count} {part}" for part, count in counts.items())
    return (
        f"{where}: the split {split_for(dataset, name)!r} leaves, of classes with 2 pictures or "
        f"more, {found}; {FEWEST} of each are needed; {_way_out(dataset, name, seed)}"
    )


def require_trainable(dataset: Dataset, name: str, *, seed: int) -> None:
    """A ValueError with the `split_problem`, where there is one."""
    if (problem := split_problem(dataset, name, seed=seed)) is not None:
        raise ValueError(problem)


def _comparable(labels: Tensor) -> int:
    return int((labels.bincount() >= 2).sum())


def _way_out(dataset: Dataset, name: str, seed: int) -> str:
    train, _, test = split_names(dataset, "stratified", validation=0.0, seed=seed)
    assert test is not None
    usable = min(_comparable(train.labels), _comparable(test.labels)) >= FEWEST
    if usable and name != "stratified":
        return "to test on other pictures of the same classes: --split stratified"
    return "add classes, or train without a test: --split all"
