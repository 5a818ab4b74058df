"""Which samples of a batch are of one class. All shapes depend on the batch size alone."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = [
    "different_pairs",
    "group_ids",
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


def group_ids(labels: Tensor) -> Tensor:
    """Number the classes of a batch 0, 1, ... in the order of their labels.

    >>> group_ids(torch.tensor([7, 3, 7, 9]))
    tensor([1, 0, 1, 2])
    """
    order = labels.argsort(stable=True)
    ordered = labels[order]
    starts = torch.ones_like(ordered)
    starts[1:] = ordered[1:] != ordered[:-1]
    return torch.empty_like(order).scatter_(0, order, starts.cumsum(0) - 1)


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
    order = labels.argsort(stable=True)
    ordered = labels[order]
    place = torch.arange(batch, device=labels.device)
    first = torch.searchsorted(ordered, ordered)  # where the class of each place begins
    size = torch.searchsorted(ordered, ordered, right=True) - first
    if width is None:
        width = batch - 1 if torch.compiler.is_compiling() else int(size.max()) - 1
    step = torch.arange(1, width + 1, device=labels.device)  # (width,)
    turn = (place - first)[:, None] + step  # (batch, width)
    index = order[first[:, None] + turn % size[:, None]]
    real = step < size[:, None]
    # back from class order to batch order
    return torch.empty_like(index).index_copy_(0, order, index), torch.empty_like(real).index_copy_(
        0, order, real
    )


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
