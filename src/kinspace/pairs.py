"""Which samples of a batch are of one class. All shapes depend on the batch size alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from kinspace import checks, runs

__all__ = [
    "class_order",
    "class_runs",
    "class_slots",
    "class_table",
    "classes",
    "different_pairs",
    "first_pairs",
    "next_same",
    "off_diagonal",
    "positive_pairs",
    "same_pairs",
    "sized_classes",
]

Array = np.ndarray[Any, np.dtype[Any]]


def different_pairs(labels: Tensor) -> Tensor:
    """(batch, batch) mask of pairs of different classes.

    >>> different_pairs(torch.tensor([0, 0, 1]))
    tensor([[False, False,  True],
            [False, False,  True],
            [ True,  True, False]])
    """
    return labels[:, None] != labels


def same_pairs(labels: Tensor) -> Tensor:
    """(batch, batch) mask of pairs of one class; no sample is paired with itself.

    >>> same_pairs(torch.tensor([0, 0, 1]))
    tensor([[False,  True, False],
            [ True, False, False],
            [False, False, False]])
    """
    return (labels[:, None] == labels).fill_diagonal_(False)


def class_slots(labels: Tensor) -> Tensor:
    """A number below the batch size for each sample, the same for all of one class.

    Sums over classes then fit tables of one row a sample, whatever the labels are.

    >>> class_slots(torch.tensor([7, 3, 7, 9]))
    tensor([1, 0, 1, 3])
    """
    return torch.searchsorted(labels.sort().values, labels)


def classes(labels: Tensor) -> tuple[Tensor, Tensor]:
    """The labels that occur, and for each sample the place of its own among them.

    In the order of the batch where it is of runs (`kinspace.runs`), otherwise in their own. Made,
    and checked, on the host like `class_table`. Inside torch.compile, where no size may depend on
    values, the places are the slots of `class_slots`, and the label of an empty one is 0.

    >>> classes(torch.tensor([7, 3, 7, 9]))
    (tensor([3, 7, 9]), tensor([1, 0, 1, 2]))
    """
    if torch.compiler.is_compiling():
        slots = class_slots(labels)
        return torch.zeros_like(labels).scatter_(0, slots, labels), slots
    occurring, place, _ = sized_classes(labels)
    return occurring, place


def sized_classes(labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """`classes`, and how many samples each has; inside torch.compile 1 for an empty slot.

    >>> sized_classes(torch.tensor([7, 3, 7, 9]))[2]
    tensor([1, 2, 1])
    """
    if torch.compiler.is_compiling():
        found, slots = classes(labels)
        ones = torch.ones_like(labels)
        return found, slots, torch.zeros_like(labels).index_add_(0, slots, ones).clamp_(min=1)
    values = checks.on_host(labels)
    if length := runs.length(values):
        place, _, _, sizes = runs.order(len(values), length, labels.device)
        return labels[::length].contiguous(), place, sizes
    names, places, _, begins = _by_class(values)
    occurring, place, sizes = _beside(labels, names, places, np.diff(begins))
    return occurring, place, sizes


def class_order(labels: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Array]:
    """`classes`, the samples by class, where in these each class begins, and the classes' sizes.

    Behind the last beginning stands the last end. The sizes stay on the host, where they are made.

    >>> class_order(torch.tensor([7, 3, 7, 9]))[2:]
    (tensor([1, 0, 2, 3]), tensor([0, 1, 3, 4]), array([1, 2, 1]))
    """
    values = checks.on_host(labels)
    if length := runs.length(values):
        place, order, begins, _ = runs.order(len(values), length, labels.device)
        sizes = np.full(len(values) // length, length)
        return labels[::length].contiguous(), place, order, begins, sizes
    names, places, samples, starts = _by_class(values)
    occurring, place, order, begins = _beside(labels, names, places, samples, starts)
    return occurring, place, order, begins, np.diff(starts)


def class_runs(labels: Tensor) -> tuple[Tensor, Tensor, Array]:
    """The samples by class, where in these each class begins, and the classes' sizes.

    The classes always in the order of their labels.

    >>> class_runs(torch.tensor([7, 3, 7, 9]))
    (tensor([1, 0, 2, 3]), tensor([0, 1, 3, 4]), array([1, 2, 1]))
    """
    _, samples, starts = _sorted(checks.on_host(labels))
    order, begins = _beside(labels, samples, starts)
    return order, begins, np.diff(starts)


def class_table(labels: Tensor) -> tuple[Tensor, Tensor]:
    """For each sample the samples of its class, itself among them, in batch order.

    Returns the indices (batch, width), the width that of the largest class, and which of them are
    positives: not the sample itself, and not what fills up the rows of smaller classes, which are
    indices of the same class again. Inside torch.compile, where no size may depend on values, the
    width is the batch size.

    The labels are checked here, in the one look at their values that the table takes. What this
    and the others here return may be shared with other calls: it is not to be written to.

    >>> index, positive = class_table(torch.tensor([5, 1, 5, 5]))
    >>> index
    tensor([[0, 2, 3],
            [1, 1, 1],
            [0, 2, 3],
            [0, 2, 3]])
    >>> positive[:2]
    tensor([[False,  True,  True],
            [False, False, False]])
    """
    if torch.compiler.is_compiling():
        same, itself = labels[:, None] == labels, torch.arange(len(labels), device=labels.device)
        return torch.where(same, itself, itself[:, None]), same.fill_diagonal_(False)
    values = checks.on_host(labels)
    if length := runs.length(values):
        return runs.tables(len(values), length, labels.device)[:2]
    order, first, after = _places(values)
    members = _members(order, first, after)
    filled = np.arange(members.shape[1]) < (after - first)[:, None]
    index, positive = _beside(
        labels, members, filled & (members != np.arange(len(members))[:, None])
    )
    return index, positive


def next_same(labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The indices of `class_table`, and the next sample of the class in batch order, cyclic.

    The last tells if there is one beside the sample itself.

    >>> next_same(torch.tensor([5, 1, 5, 5]))[1:]
    (tensor([2, 1, 3, 0]), tensor([ True, False,  True,  True]))
    """
    if torch.compiler.is_compiling():
        itself = torch.arange(len(labels), device=labels.device)
        steps = (itself - itself[:, None] - 1) % len(labels)  # from each sample on
        partner = steps.masked_fill(labels[:, None] != labels, len(labels)).argmin(1)
        return class_table(labels)[0], partner, partner != itself
    values = checks.on_host(labels)
    if length := runs.length(values):
        index, _, partner, exists = runs.tables(len(values), length, labels.device)
        return index, partner, exists
    order, first, after = _places(values)
    following = np.empty_like(order)
    following[order] = np.arange(1, len(order) + 1)  # the place after the sample's own
    partner_of = order[np.where(following < after, following, first)]
    index, partner, exists = _beside(
        labels, _members(order, first, after), partner_of, after - first > 1
    )
    return index, partner, exists


def first_pairs(labels: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """The first two samples of each class that has two: the first ones and the second.

    Inside torch.compile, where no size may depend on values, each sample and the next of its class,
    and which of them these are.

    >>> first_pairs(torch.tensor([5, 1, 5, 5, 0, 0]))
    (tensor([4, 0]), tensor([5, 2]), None)
    """
    if torch.compiler.is_compiling():
        _, partner, paired = next_same(labels)
        itself = torch.arange(len(labels), device=labels.device)
        return itself, partner, paired & ((labels[:, None] == labels).int().argmax(1) == itself)
    _, samples, starts = _sorted(checks.on_host(labels))
    begins = starts[:-1][np.diff(starts) > 1]
    one, other = _beside(labels, samples[begins], samples[begins + 1])
    return one, other, None


def positive_pairs(labels: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Each pair of one class once: the first samples and the second, in batch order.

    Inside torch.compile, where no size may depend on values, all pairs of the batch, and which of
    them these are.

    >>> positive_pairs(torch.tensor([5, 1, 5, 5]))
    (tensor([0, 0, 2]), tensor([2, 3, 3]), None)
    """
    if torch.compiler.is_compiling():
        itself = torch.arange(len(labels), device=labels.device)
        one, other = itself.repeat_interleave(len(labels)), itself.repeat(len(labels))
        return one, other, (labels[one] == labels[other]) & (one < other)
    values = checks.on_host(labels)
    if length := runs.length(values):
        return *runs.pairs(len(values), length, labels.device), None
    order, first, after = _places(values)
    members = _members(order, first, after)
    filled = np.arange(members.shape[1]) < (after - first)[:, None]
    rows, places = np.nonzero(filled & (members > np.arange(len(members))[:, None]))
    # what nonzero returns has gaps
    one, other = _beside(labels, np.ascontiguousarray(rows), members[rows, places])
    return one, other, None


def _sorted(values: Array) -> tuple[Array, Array, Array]:
    """The labels in their order, the samples by class, where each class begins, and the end.

    On the host, by NumPy: sizes are needed there anyway, and a score of tiny steps takes less time
    there than as many launches.
    """
    low = int(values.min())
    checks.not_negative("labels", low)
    near = int(values.max()) - low < 2**16
    # NumPy sorts 16 bits by radix, many times faster
    order = np.argsort((values - low).astype(np.uint16) if near else values, kind="stable")
    ordered = values[order]
    inner = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    return ordered, order, np.concatenate(([0], inner, [len(ordered)]))


def _by_class(values: Array) -> tuple[Array, Array, Array, Array]:
    """The labels that occur, for each sample the place of its own, the samples by class, begins.

    Begins: where in these each class begins, and the end.
    """
    ordered, order, begins = _sorted(values)
    place = np.empty_like(order)
    place[order] = np.repeat(np.arange(len(begins) - 1), np.diff(begins))
    return ordered[begins[:-1]], place, order, begins


def _places(values: Array) -> tuple[Array, Array, Array]:
    """The samples by class, and where in this order the class of each begins and ends."""
    _, place, order, begins = _by_class(values)
    return order, begins[place], begins[place + 1]


def _members(order: Array, first: Array, after: Array) -> Array:
    """The class of each sample, filled up with its last one, (batch, largest class)."""
    place = first[:, None] + np.arange((after - first).max())
    members: Array = order[np.minimum(place, after[:, None] - 1)]
    return members


def _beside(labels: Tensor, *arrays: Array) -> tuple[Tensor, ...]:
    """The arrays on the labels' device, those of 8 bytes a value first.

    In one piece: a copy to a GPU costs the same for three small arrays as for one. Without waiting
    for what the GPU has to do before: of such memory the driver keeps a copy of its own.
    """
    tensors = tuple(map(torch.from_numpy, arrays))
    if labels.device.type == "cpu":
        return tensors
    whole = np.concatenate([array.reshape(-1).view(np.uint8) for array in arrays])
    there = torch.from_numpy(whole).to(labels.device, non_blocking=True)
    pieces = there.split([array.nbytes for array in arrays])
    both = zip(pieces, tensors, strict=True)
    return tuple(  # an empty piece has no strides to view it by
        (piece.view(tensor.dtype) if tensor.numel() else piece.to(tensor.dtype)).view(tensor.shape)
        for piece, tensor in both
    )


def off_diagonal(matrix: Tensor) -> Tensor:
    """The rows of a square matrix without its diagonal, (n, n - 1).

    >>> off_diagonal(torch.arange(9).view(3, 3))
    tensor([[1, 2],
            [3, 5],
            [6, 7]])
    """
    size = len(matrix)
    return matrix.flatten()[1:].view(size - 1, size + 1)[:, :-1].reshape(size, size - 1)
