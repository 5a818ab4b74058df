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
    "own_class",
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


def positives(labels: Tensor) -> tuple[Tensor, Tensor]:
    """For each sample the others of its class, in batch order.

    Returns the indices (batch, width) and which of them are real: rows of small classes are filled
    up with the sample itself. The width is that of the largest class less one, and never 0. Inside
    torch.compile, where no size may depend on values, it is the batch size less one.

    >>> index, real = positives(torch.tensor([5, 1, 5, 5]))
    >>> index
    tensor([[2, 3],
            [1, 1],
            [0, 3],
            [0, 2]])
    >>> real[1]
    tensor([False, False])
    """
    if labels.is_cuda and not torch.compiler.is_compiling():
        # The width is needed on the host anyway. A score of tiny steps is quicker there than as
        # many launches.
        index, real = positives(labels.cpu())
        return index.to(labels.device), real.to(labels.device)
    ordered, order = labels.sort(stable=True)
    first = torch.searchsorted(ordered, labels)[:, None]  # where the own class begins, (batch, 1)
    size = torch.searchsorted(ordered, labels, right=True)[:, None] - first
    place = torch.arange(len(labels), device=labels.device)
    rank = torch.empty_like(order).scatter_(0, order, place)[:, None] - first
    largest = len(labels) if torch.compiler.is_compiling() else int(size.max())
    step = torch.arange(max(largest - 1, 1), device=labels.device)  # (width,)
    real = step < size - 1
    turn = step + (step >= rank)  # passes over the sample itself, (batch, width)
    return order[first + torch.where(real, turn, rank)], real


def own_class(index: Tensor) -> Tensor:
    """The indices of `positives` with the sample itself in front, (batch, 1 + width).

    >>> own_class(positives(torch.tensor([5, 1, 5]))[0])
    tensor([[0, 2],
            [1, 1],
            [2, 0]])
    """
    return torch.cat([torch.arange(len(index), device=index.device)[:, None], index], dim=1)


def next_same(index: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
    """From `positives`: the next sample of the class in batch order, cyclic, and if there is one.

    >>> next_same(*positives(torch.tensor([5, 1, 5, 5])))
    (tensor([2, 1, 3, 0]), tensor([ True, False,  True,  True]))
    """
    own = torch.arange(len(index), device=index.device)[:, None]
    before = (index < own).sum(1, keepdim=True)  # padding, the sample itself, is not before it
    count = real.sum(1, keepdim=True)
    turn = torch.where(before < count, before, 0)
    return index.gather(1, turn)[:, 0], count[:, 0] > 0


def off_diagonal(matrix: Tensor) -> Tensor:
    """The rows of a square matrix without its diagonal, (n, n - 1).

    >>> off_diagonal(torch.arange(9).view(3, 3))
    tensor([[1, 2],
            [3, 5],
            [6, 7]])
    """
    size = len(matrix)
    return matrix.flatten()[1:].view(size - 1, size + 1)[:, :-1].reshape(size, size - 1)
