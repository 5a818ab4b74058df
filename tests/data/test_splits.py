import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kinspace.data import (
    Dataset,
    Split,
    class_folds,
    from_arrays,
    hold_out_classes,
    official,
    stratified,
    zero_shot,
)


def _dataset(labels: list[int], parts: tuple[str, ...] | None = None) -> Dataset:
    data = from_arrays(np.zeros((len(labels), 2, 2), np.uint8), labels)
    return Dataset(data.pictures, data.labels, data.class_names, parts=parts)


def _names(dataset: Dataset) -> set[str]:
    return {dataset.pictures.name(i) for i in range(len(dataset))}


many_labels = st.lists(st.integers(0, 9), min_size=1, max_size=40)
# at least two classes
some_labels = many_labels.map(lambda labels: [*labels, 20, 21])
fractions = st.floats(0.01, 0.99)
seeds = st.integers(0, 5)


def _parts(split: Split) -> list[Dataset]:
    return [getattr(split, name) for name in split.parts]


def _assert_a_partition(split: Split) -> None:
    names = [_names(part) for part in _parts(split)]
    assert sum(len(part) for part in names) == len(split.dataset)
    assert set().union(*names) == _names(split.dataset)


def _assert_no_shared_class(split: Split) -> None:
    classes = [set(part.class_names) for part in _parts(split)]
    assert sum(len(names) for names in classes) == split.dataset.num_classes


@given(some_labels, st.one_of(st.just(0.0), fractions), seeds)
def test_zero_shot_halves_share_neither_pictures_nor_classes(
    labels: list[int], validation: float, seed: int
) -> None:
    data = _dataset([*labels, 22])
    split = zero_shot(data, validation=validation, seed=seed)
    _assert_a_partition(split)
    _assert_no_shared_class(split)
    half = (data.num_classes + 1) // 2
    assert split.test.class_names == data.class_names[half:]
    assert ("validation" in split.parts) == (validation > 0)


@given(some_labels, fractions, seeds)
def test_held_out_classes_are_whole_and_of_the_wanted_number(
    labels: list[int], fraction: float, seed: int
) -> None:
    data = _dataset(labels)
    split = hold_out_classes(data, fraction, seed=seed)
    _assert_a_partition(split)
    _assert_no_shared_class(split)
    assert abs(split.validation.num_classes - fraction * data.num_classes) <= 1
    assert torch.equal(split.assignment, hold_out_classes(data, fraction, seed=seed).assignment)


@given(some_labels, st.integers(2, 5), seeds)
def test_every_class_is_held_out_by_one_fold(labels: list[int], folds: int, seed: int) -> None:
    data = _dataset([*labels, 22, 23, 24])
    splits = class_folds(data, folds, seed=seed)
    held_out = [name for split in splits for name in split.validation.class_names]
    assert sorted(held_out) == sorted(data.class_names)
    sizes = [split.validation.num_classes for split in splits]
    assert max(sizes) - min(sizes) <= 1
    for split in splits:
        _assert_a_partition(split)
        _assert_no_shared_class(split)


@given(many_labels, fractions, seeds)
def test_a_stratified_split_has_every_class_of_two_in_both_parts(
    labels: list[int], fraction: float, seed: int
) -> None:
    data = _dataset([*labels, 5, 5, 30])
    split = stratified(data, fraction, seed=seed)
    _assert_a_partition(split)
    counts = data.labels.bincount()
    assert split.train.class_names == data.class_names
    several = [name for name, n in zip(data.class_names, counts, strict=True) if n > 1]
    assert list(split.test.class_names) == several
    tests = split.assignment.bool().long()
    of_class = torch.zeros_like(counts).scatter_add_(0, data.labels, tests)
    assert ((of_class - fraction * counts).abs() <= 1).all()


def test_another_seed_is_another_split() -> None:
    data = _dataset(list(range(50)) * 2)
    one, other = (hold_out_classes(data, 0.3, seed=seed) for seed in (0, 1))
    assert not torch.equal(one.assignment, other.assignment)


def test_a_part_is_split_within_itself() -> None:
    data = _dataset([label for label in range(20) for _ in range(3)])
    outer = zero_shot(data)
    inner = hold_out_classes(outer.train, 0.2, seed=0)
    assert _names(inner.train) | _names(inner.validation) == _names(outer.train)
    assert not _names(inner.validation) & _names(outer.test)


def test_official_parts_keep_queries_and_gallery() -> None:
    parts = ("train", "val", "query", "gallery", "gallery", "test")
    split = official(_dataset([0, 0, 1, 1, 2, 0], parts))
    assert split.parts == ("train", "validation", "test")
    assert split.test.parts == ("query", "gallery", "gallery", "test")
    assert len(split.test.part("query", "gallery")) == 3
    _assert_a_partition(split)


def test_a_class_in_two_parts_is_refused_unless_it_is_meant() -> None:
    data = _dataset([0, 0, 1])
    with pytest.raises(ValueError, match="expected every class in one part, got 1 in several: '0'"):
        Split(data, torch.tensor([0, 2, 2]))
    assert Split(data, torch.tensor([0, 2, 2]), shares_classes=True).test.num_classes == 2


def test_a_picture_held_twice_cannot_be_in_two_parts() -> None:
    twice = _dataset([0, 0, 1, 1]).subset([0, 0, 2])
    with pytest.raises(ValueError, match="'picture 0' in several"):
        Split(twice, torch.tensor([0, 2, 2]), shares_classes=True)


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ([0, 0, 2], r"expected int64 of shape \(4,\)"),
        ([0, 0, 0, 0], r"at least one of 1 \(validation\) and 2 \(test\), got \[0\]"),
        ([1, 1, 2, 2], r"expected 0 \(train\)"),
        ([0, 0, 3, 3], "got "),
    ],
)
def test_an_assignment_that_makes_no_split_is_refused(assignment: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Split(_dataset([0, 0, 1, 1]), torch.tensor(assignment))


def test_what_cannot_be_divided_says_so() -> None:
    one = _dataset([0, 0])
    for divide in (
        zero_shot,
        lambda data: hold_out_classes(data, 0.5, seed=0),
        lambda data: class_folds(data, 2, seed=0),
    ):
        with pytest.raises(ValueError, match="expected at least 2 classes to divide, got 1"):
            divide(one)
    with pytest.raises(ValueError, match="a class with two pictures or more"):
        stratified(_dataset([0, 1]), 0.5, seed=0)
    with pytest.raises(ValueError, match="fraction: expected a number between 0 and 1, got"):
        stratified(one, 1.5, seed=0)
    with pytest.raises(ValueError, match="has no validation part; choose from: train, test"):
        _ = zero_shot(_dataset([0, 1])).validation
    with pytest.raises(ValueError, match="no official parts"):
        official(one)


def test_a_mask_is_refused() -> None:
    data = _dataset([0, 0, 1])
    with pytest.raises(ValueError, match="expected numbers, got a mask"):
        data.subset(data.labels == 1)
    assert len(data.subset((data.labels == 1).nonzero().flatten())) == 1
