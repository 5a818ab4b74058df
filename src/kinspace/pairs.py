"""Which samples of a batch are of one class. All shapes depend on the batch size alone."""

from __future__ import annotations

import torch
from torch import Tensor

from kinspace import checks

__all__ = [
    "class_slots",
    "class_sums",
    "class_table",
    "different_pairs",
    "next_same",
    "off_diagonal",
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


def class_table(labels: Tensor) -> tuple[Tensor, Tensor]:
    """For each sample the samples of its class, itself among them, in batch order.

    Returns the indices (batch, width), the width that of the largest class, and which of them are
    positives: not the sample itself, and not what fills up the rows of smaller classes, which are
    indices of the same class again. Inside torch.compile, where no size may depend on values, the
    width is the batch size.

    The labels are checked here, in the one look at their values that the width takes.

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
    ordered, order = labels.sort(stable=True)
    first = torch.searchsorted(ordered, labels)
    after = torch.searchsorted(ordered, labels, right=True)
    width = len(labels)
    if not torch.compiler.is_compiling():
        low, width = torch.stack([ordered[0], (after - first).max()]).tolist()
        checks.not_negative("labels", low)
    place = first[:, None] + torch.arange(width, device=labels.device)
    after = after[:, None]
    index = order[torch.minimum(place, after - 1)]
    itself = torch.arange(len(labels), device=labels.device)[:, None]
    return index, (place < after) & (index != itself)


def next_same(index: Tensor, positive: Tensor) -> tuple[Tensor, Tensor]:
    """From `class_table`: the next sample of the class in batch order, cyclic, and if there is one.

    >>> next_same(*class_table(torch.tensor([5, 1, 5, 5])))
    (tensor([2, 1, 3, 0]), tensor([ True, False,  True,  True]))
    """
    itself = torch.arange(len(index), device=index.device)[:, None]
    count = positive.sum(1, keepdim=True)
    rank = ((index < itself) & positive).sum(1, keepdim=True)
    return index.gather(1, (rank + 1) % (count + 1))[:, 0], count[:, 0] > 0


def off_diagonal(matrix: Tensor) -> Tensor:
    """The rows of a square matrix without its diagonal, (n, n - 1).

    >>> off_diagonal(torch.arange(9).view(3, 3))
    tensor([[1, 2],
            [3, 5],
            [6, 7]])
    """
    size = len(matrix)
    return matrix.flatten()[1:].view(size - 1, size + 1)[:, :-1].reshape(size, size - 1)
