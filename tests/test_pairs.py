"""Masks and positions of the samples of one class, against plain loops over the labels."""

import itertools
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import loops
from batches import Batch
from gradients import evaluate
from kinspace import runs
from kinspace.class_sums import class_sums
from kinspace.pairs import (
    class_order,
    class_slots,
    class_table,
    classes,
    different_pairs,
    next_same,
    off_diagonal,
    positive_pairs,
    same_pairs,
    sized_classes,
)
from methods import METHODS

batches_of_labels = st.lists(st.integers(0, 5), min_size=1, max_size=10)


def scattered(labels: list[int]) -> Tensor:
    """The labels in no order and far apart: nothing may depend on their values."""
    return torch.tensor([(7 * label % 6) * 10**12 for label in labels])


@given(batches_of_labels)
def test_pairs_are_of_one_class_or_of_two(labels: list[int]) -> None:
    tensor = scattered(labels)
    same, different = same_pairs(tensor), different_pairs(tensor)
    for i in range(len(labels)):
        assert same[i].nonzero().flatten().tolist() == loops.others_of_class(labels, i)
        others = loops.samples_of_other_classes(labels, i)
        assert different[i].nonzero().flatten().tolist() == others


@given(batches_of_labels)
def test_the_next_of_a_class_is_the_next_in_batch_order(labels: list[int]) -> None:
    own, index, exists = next_same(scattered(labels))
    assert torch.equal(own, class_table(scattered(labels))[0])
    assert torch.where(exists, index, -1).tolist() == loops.next_same(labels)
    assert index[~exists].tolist() == (~exists).nonzero().flatten().tolist()  # a row to look up


@given(batches_of_labels)
def test_the_class_table_has_the_class_of_each_sample_in_batch_order(labels: list[int]) -> None:
    index, positive = class_table(scattered(labels))
    largest = max(labels.count(label) for label in labels)
    assert index.shape == positive.shape == (len(labels), largest)
    for i, label in enumerate(labels):
        assert index[i][positive[i]].tolist() == loops.others_of_class(labels, i)
        own = {j for j, other in enumerate(labels) if other == label}
        assert set(index[i].tolist()) == own  # itself among them, and nothing of other classes


@given(batches_of_labels)
def test_each_positive_pair_is_listed_once(labels: list[int]) -> None:
    one, other, real = positive_pairs(scattered(labels))
    expected = [
        (i, j) for i, j in itertools.combinations(range(len(labels)), 2) if labels[i] == labels[j]
    ]
    assert list(zip(one.tolist(), other.tolist(), strict=True)) == expected
    assert real is None
    assert one.is_contiguous()


def test_the_class_table_looks_at_the_labels() -> None:
    with pytest.raises(ValueError, match="labels: expected 0 or more, got -2"):
        class_table(torch.tensor([0, -2]))


@given(batches_of_labels)
def test_a_slot_is_shared_by_one_class_and_no_other(labels: list[int]) -> None:
    slots = class_slots(scattered(labels))
    assert slots.shape == (len(labels),)
    assert 0 <= slots.min() <= slots.max() < len(labels)
    by_slot = slots[:, None] == slots
    assert torch.equal(by_slot, ~different_pairs(torch.tensor(labels)))


@given(batches_of_labels)
def test_the_classes_are_the_labels_that_occur(labels: list[int]) -> None:
    found, places = classes(scattered(labels))
    assert sorted(found.tolist()) == sorted(set(scattered(labels).tolist()))
    assert torch.equal(found[places], scattered(labels))


@given(batches_of_labels)
def test_the_order_of_the_classes_is_that_of_the_samples(labels: list[int]) -> None:
    tensor = scattered(labels)
    found, places, order, begins, sizes = class_order(tensor)
    assert torch.equal(found[places], tensor)
    assert sorted(order.tolist()) == list(range(len(labels)))
    assert begins.tolist() == [0, *itertools.accumulate(sizes.tolist())]
    for k, own in enumerate(found):
        samples = order[begins[k] : begins[k + 1]]
        assert samples.tolist() == torch.nonzero(tensor == own).flatten().tolist()
    assert sized_classes(tensor)[2].tolist() == sizes.tolist()
    assert torch.equal(sized_classes(tensor)[0], found)


RUNS = [[4], [4, 4], [4, 1, 3], [3, 3, 9, 9, 0, 0], [0, 0, 0, 1, 1, 1, 2, 2, 2]]
NEARLY = [[3, 3, 9, 9, 3, 3], [3, 3, 9, 9, 0], [3, 3, 9, 0, 0, 9], [0, 0, 0, 1, 1, 1, 2, 2, 0]]


def tables(labels: Tensor) -> list[Tensor]:
    return [*class_table(labels), *next_same(labels), *positive_pairs(labels)[:2]]


def all_kept(labels: Tensor) -> list[Tensor]:
    """Where a batch is of runs."""
    return [*tables(labels), *class_order(labels)[1:4], sized_classes(labels)[2]]


@pytest.mark.parametrize("labels", RUNS + NEARLY, ids=str)
def test_a_batch_of_runs_has_the_tables_of_any_batch(
    labels: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    tensor = torch.tensor(labels)
    assert bool(runs.length(tensor.numpy())) == (labels in RUNS)
    quick = tables(tensor)
    monkeypatch.setattr(runs, "KEPT", 0)
    assert not runs.length(tensor.numpy())
    for found, expected in zip(quick, tables(tensor), strict=True):
        assert found.dtype == expected.dtype
        assert torch.equal(found, expected)


def test_no_method_writes_to_the_tables_that_are_kept() -> None:
    labels = torch.arange(4).repeat_interleave(3)
    embeddings = torch.randn(12, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():  # a batch of a validation comes first
        kept = all_kept(labels)
    before = [table.clone() for table in kept]
    for method in METHODS:
        arguments = method.arguments(Batch(embeddings, labels), 0)
        for options in method.options:
            evaluate(method.function, arguments, options)
    after = all_kept(labels)
    for table, same, copy in zip(kept, after, before, strict=True):
        assert table is same
        assert torch.equal(table, copy)


@pytest.mark.parametrize("function", [classes, next_same, class_table])
def test_what_is_made_of_labels_looks_at_them(function: Callable[[Tensor], object]) -> None:
    with pytest.raises(ValueError, match="labels: expected 0 or more, got -2"):
        function(torch.tensor([0, -2]))


@given(batches_of_labels)
def test_class_sums_are_sums_and_counts(labels: list[int]) -> None:
    x = torch.randn(len(labels), 3, dtype=torch.float64)
    sums, counts = class_sums(x, torch.tensor(labels), 6)
    for label in range(6):
        rows = x[[i for i, other in enumerate(labels) if other == label]]
        torch.testing.assert_close(sums[label], rows.sum(0))
        assert counts[label] == len(rows)


def test_class_sums_are_differentiated() -> None:
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    classes = torch.tensor([0, 2, 2, 0, 3])
    assert torch.autograd.gradcheck(lambda rows: class_sums(rows, classes, 4)[0], [x])


@pytest.mark.parametrize("size", [1, 2, 5])
def test_off_diagonal_leaves_out_the_diagonal(size: int) -> None:
    matrix = torch.randn(size, size)
    found = off_diagonal(matrix)
    assert found.shape == (size, size - 1)
    for i in range(size):
        assert found[i].tolist() == [matrix[i, j].item() for j in range(size) if j != i]


@pytest.mark.parametrize("function", [same_pairs, different_pairs, class_slots, class_table])
def test_the_labels_are_left_as_they_are(function: object) -> None:
    labels = torch.tensor([3, 1, 3, 0])
    assert callable(function)
    function(labels)
    assert labels.tolist() == [3, 1, 3, 0]
