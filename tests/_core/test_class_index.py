"""Which samples of a batch are of one class, against plain loops over the labels."""

from collections.abc import Callable
from itertools import combinations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import loops
from kinspace._core.class_index import ClassIndex, class_means, class_sums

batches_of_labels = st.lists(st.integers(0, 5), min_size=1, max_size=10)
PROPERTIES = [
    "same",
    "different",
    "order",
    "sizes",
    "slots",
    "classes",
    "positives",
    "following",
    "first_pairs",
    "pairs",
]
EVERY_PROPERTY = pytest.mark.parametrize("name", PROPERTIES)


def scattered(labels: list[int]) -> Tensor:
    """The labels in no order and far apart: nothing may depend on their values."""
    return torch.tensor([(7 * label % 6) * 10**12 for label in labels])


def pairs_of(labels: list[int]) -> list[tuple[int, int]]:
    return [(i, j) for i, j in combinations(range(len(labels)), 2) if labels[i] == labels[j]]


def first_pairs_of(labels: list[int]) -> set[tuple[int, int]]:
    members = [[i for i, other in enumerate(labels) if other == label] for label in set(labels)]
    return {(own[0], own[1]) for own in members if len(own) > 1}


# --- against loops -------------------------------------------------------------------------------


@given(batches_of_labels)
def test_pairs_are_of_one_class_or_of_two(labels: list[int]) -> None:
    index = ClassIndex(scattered(labels))
    for i in range(len(labels)):
        own = sorted([i, *loops.others_of_class(labels, i)])
        assert index.same[i].nonzero().flatten().tolist() == own
        others = loops.samples_of_other_classes(labels, i)
        assert index.different[i].nonzero().flatten().tolist() == others


@given(batches_of_labels)
def test_the_order_has_class_after_class_and_batch_order_within(labels: list[int]) -> None:
    tensor = scattered(labels)
    expected = sorted(range(len(labels)), key=lambda i: (tensor[i].item(), i))
    assert ClassIndex(tensor).order.tolist() == expected


@given(batches_of_labels)
def test_a_size_is_the_number_of_samples_of_the_class(labels: list[int]) -> None:
    assert ClassIndex(scattered(labels)).sizes.tolist() == [labels.count(own) for own in labels]


@given(batches_of_labels)
def test_a_slot_is_shared_by_one_class_and_no_other(labels: list[int]) -> None:
    index = ClassIndex(scattered(labels))
    slots = index.slots
    assert slots.shape == (len(labels),)
    assert 0 <= slots.min() <= slots.max() < len(labels)
    assert torch.equal(slots[:, None] == slots, index.same)


@given(batches_of_labels)
def test_the_classes_are_the_labels_that_occur_in_ascending_order(labels: list[int]) -> None:
    tensor = scattered(labels)
    found, places = ClassIndex(tensor).classes
    assert found.tolist() == sorted(set(tensor.tolist()))
    assert torch.equal(found[places], tensor)


@given(batches_of_labels)
def test_positives_are_the_others_of_the_class_in_batch_order(labels: list[int]) -> None:
    index, counts = ClassIndex(scattered(labels)).positives
    largest = max(labels.count(label) for label in labels)
    assert index.shape == counts.shape == (len(labels), largest)
    for i, label in enumerate(labels):
        assert index[i][counts[i]].tolist() == loops.others_of_class(labels, i)
        own = {j for j, other in enumerate(labels) if other == label}
        assert set(index[i].tolist()) == own  # itself among them, and nothing of other classes


@given(batches_of_labels)
def test_the_following_sample_is_the_next_of_the_class_in_batch_order(labels: list[int]) -> None:
    index, exists = ClassIndex(scattered(labels)).following
    assert torch.where(exists, index, -1).tolist() == loops.next_same(labels)
    assert index[~exists].tolist() == (~exists).nonzero().flatten().tolist()  # a row to look up


@given(batches_of_labels)
def test_a_first_pair_is_the_first_two_samples_of_a_class(labels: list[int]) -> None:
    one, other, counts = ClassIndex(scattered(labels)).first_pairs
    assert counts.all()
    assert set(zip(one.tolist(), other.tolist(), strict=True)) == first_pairs_of(labels)
    assert len(one) == len(first_pairs_of(labels))


@given(batches_of_labels)
def test_each_pair_of_one_class_is_listed_once(labels: list[int]) -> None:
    one, other, counts = ClassIndex(scattered(labels)).pairs
    assert counts.all()
    assert list(zip(one.tolist(), other.tolist(), strict=True)) == pairs_of(labels)


@EVERY_PROPERTY
def test_the_labels_are_left_as_they_are(name: str) -> None:
    labels = torch.tensor([3, 1, 3, 0])
    getattr(ClassIndex(labels), name)
    assert labels.tolist() == [3, 1, 3, 0]


# --- where values cannot be read: torch.compile and vmap -----------------------------------------

# Of one length, so that one graph serves them all.
LABELS = [
    [5, 1, 5, 5, 0, 0],
    [4, 4, 4, 4, 4, 4],
    [9, 2, 7, 1, 3, 0],
    [3, 3, 9, 9, 0, 0],
    [0, 1, 2, 0, 1, 2],
    [8, 8, 8, 1, 8, 8],
]


def all_properties(labels: Tensor) -> dict[str, Tensor | tuple[Tensor, ...]]:
    index = ClassIndex(labels)
    return {name: getattr(index, name) for name in PROPERTIES}


def compiled() -> list[dict[str, Tensor | tuple[Tensor, ...]]]:
    torch._dynamo.reset()
    function = torch.compile(all_properties, fullgraph=True, backend="eager", dynamic=False)
    found = [function(torch.tensor(LABELS[0]))]
    with torch._dynamo.config.patch(error_on_recompile=True):
        found += [function(torch.tensor(labels)) for labels in LABELS[1:]]
    return found


def mapped() -> list[dict[str, Tensor | tuple[Tensor, ...]]]:
    found = torch.func.vmap(all_properties)(torch.tensor(LABELS))
    return [
        {
            name: tuple(part[row] for part in value) if isinstance(value, tuple) else value[row]
            for name, value in found.items()
        }
        for row in range(len(LABELS))
    ]


@pytest.mark.parametrize("trace", [compiled, mapped], ids=["torch.compile", "vmap"])
def test_traced_forms_agree_with_eager_ones(
    trace: Callable[[], list[dict[str, Tensor | tuple[Tensor, ...]]]],
) -> None:
    for labels, found in zip(LABELS, trace(), strict=True):
        expected = all_properties(torch.tensor(labels))
        for name in ("same", "different", "order", "sizes", "slots"):
            assert torch.equal(found[name], expected[name]), name
        index, exists = found["following"]
        assert torch.equal(index, expected["following"][0])
        assert torch.equal(exists, expected["following"][1])
        for name in ("first_pairs", "pairs"):
            one, other, counts = found[name]
            assert torch.equal(one[counts], expected[name][0]), name
            assert torch.equal(other[counts], expected[name][1]), name


@pytest.mark.parametrize("trace", [compiled, mapped], ids=["torch.compile", "vmap"])
def test_traced_tables_are_as_long_as_the_batch_and_say_what_counts(
    trace: Callable[[], list[dict[str, Tensor | tuple[Tensor, ...]]]],
) -> None:
    for labels, found in zip(LABELS, trace(), strict=True):
        classes, places = found["classes"]
        assert classes.shape == (6,)
        assert torch.equal(classes[places], torch.tensor(labels))
        assert set(classes.tolist()) == set(labels)
        index, counts = found["positives"]
        assert index.shape == counts.shape == (6, 6)
        for i, label in enumerate(labels):
            assert index[i][counts[i]].tolist() == loops.others_of_class(labels, i)
            assert all(labels[j] == label for j in index[i].tolist())


def test_an_index_in_a_graph_serves_a_gradient() -> None:
    """A mean over positives: in eager mode, compiled, and mapped over batches of one label set."""
    labels = torch.tensor(LABELS[0])

    def loss(x: Tensor) -> Tensor:
        index, counts = ClassIndex(labels).positives
        return ((x[:, None] - x[index]).square().sum(-1) * counts).sum() / counts.sum()

    x = torch.randn(6, 3, dtype=torch.float64)
    expected = torch.func.grad(loss)(x)
    torch._dynamo.reset()
    traced = torch.compile(torch.func.grad(loss), fullgraph=True, backend="eager")
    torch.testing.assert_close(traced(x), expected)
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(loss))(x[None])[0], expected)


# --- sums and means ------------------------------------------------------------------------------


@given(batches_of_labels)
def test_class_sums_and_means_are_those_of_the_rows(labels: list[int]) -> None:
    x = torch.randn(len(labels), 3, dtype=torch.float64)
    classes = torch.tensor(labels)
    sums = class_sums(x, classes, 6)
    means, counts = class_means(x, classes, 6)
    for label in range(6):
        rows = x[[i for i, other in enumerate(labels) if other == label]]
        torch.testing.assert_close(sums[label], rows.sum(0))
        torch.testing.assert_close(means[label], rows.sum(0) / max(len(rows), 1))
        assert counts[label] == len(rows)
    torch.testing.assert_close(class_sums(x[:, 0], classes, 6), sums[:, 0])


def test_class_sums_and_means_are_differentiated_twice() -> None:
    x = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    classes = torch.tensor([0, 2, 2, 0, 3])
    for function in (class_sums, lambda *given: class_means(*given)[0]):

        def call(rows: Tensor, function: Callable[..., Tensor] = function) -> Tensor:
            return function(rows, classes, 4).square()

        assert torch.autograd.gradcheck(call, [x])
        assert torch.autograd.gradgradcheck(call, [x])


def test_the_counts_of_classes_are_no_part_of_the_graph() -> None:
    x = torch.randn(3, 2, requires_grad=True)
    _, counts = class_means(x, torch.tensor([0, 1, 1]), 2)
    assert not counts.requires_grad
