"""Which samples of a batch are of one class. All shapes depend on the batch size alone."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = [
    "class_slots",
    "class_sums",
    "different_pairs",
    "next_same",
    "off_diagonal",
    "positives",
    "same_pairs",
]


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


def class_sums(embeddings: Tensor, classes: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Sum (count, dim) and number (count,) of the rows of each class.

    >>> class_sums(torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([2, 0, 2]), 3)
    (tensor([[2.],
            [0.],
            [5.]]), tensor([1., 0., 2.]))
    """
    sums = embeddings.new_zeros(count, embeddings.shape[1]).index_add(0, classes, embeddings)
    ones = embeddings.new_ones(len(embeddings))
    return sums, ones.new_zeros(count).index_add_(0, classes, ones)


def positives(labels: Tensor, width: int | None = None) -> tuple[Tensor, Tensor]:
    """For each sample the others of its class, in batch order from itself on, cyclic.

    Returns the indices (batch, width) and which of them are real: rows of small classes are
    padded. The width is that of the largest class, unless given. Inside torch.compile, where
    no size may depend on values, it is the batch size less one.

    >>> positives(torch.tensor([5, 1, 5, 5]))[0]
    tensor([[2, 3],
            [1, 1],
            [3, 0],
            [0, 2]])
    """
    batch = len(labels)
    ordered, order = labels.sort(stable=True)
    place = torch.empty_like(order)
    place[order] = torch.arange(batch, device=labels.device)
    first = torch.searchsorted(ordered, labels)  # where the class of each sample begins
    size = torch.searchsorted(ordered, labels, right=True) - first
    if width is None:
        width = batch - 1 if torch.compiler.is_compiling() else int(size.max()) - 1
    step = torch.arange(1, width + 1, device=labels.device)  # (width,)
    turn = ((place - first)[:, None] + step) % size[:, None]  # (batch, width)
    return order[first[:, None] + turn], step < size[:, None]


def next_same(labels: Tensor) -> tuple[Tensor, Tensor]:
    """For each sample the next one of its class in batch order, cyclic, and whether there is one.

    >>> next_same(torch.tensor([5, 1, 5, 5]))
    (tensor([2, 1, 3, 0]), tensor([ True, False,  True,  True]))
    """
    index, real = positives(labels, width=1)
    return index[:, 0], real[:, 0]


def off_diagonal(matrix: Tensor) -> Tensor:
    """The rows of a square matrix without its diagonal, (n, n - 1).

    >>> off_diagonal(torch.arange(9).view(3, 3))
    tensor([[1, 2],
            [3, 5],
            [6, 7]])
    """
    size = len(matrix)
    return matrix.flatten()[1:].view(size - 1, size + 1)[:, :-1].reshape(size, size - 1)
