"""Learners: an embedding whose dimensions are split into groups, each a small embedding of its own.

An ensemble within one vector (BIER, HDC, ABE). Groups brought to one length count alike in the
cosine of the whole, which is then the mean of the learners' cosines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from kinspace import checks
from kinspace.numerics import unit

__all__ = ["checked_groups", "group_sizes", "stacked", "unit_groups", "unstacked"]


def checked_groups(groups: int | Sequence[int]) -> int | tuple[int, ...]:
    """A number of groups, or the size of each.

    >>> checked_groups(3), checked_groups([96, 160, 256])
    (3, (96, 160, 256))
    """
    if isinstance(groups, (list, tuple)) and groups:
        return tuple(checks.whole("groups", size, at_least=1) for size in groups)
    if isinstance(groups, int):
        return checks.whole("groups", groups, at_least=1)
    raise ValueError(f"groups: expected a number of groups or a list of sizes, got {groups!r}")


def group_sizes(groups: int | Sequence[int], dim: int) -> list[int]:
    """The sizes of the groups of so many dimensions.

    A number deals them out evenly, one more to the first where it does not come out even; there
    are never more groups than dimensions.

    >>> group_sizes(3, 8), group_sizes(3, 2), group_sizes([2, 6], 8)
    ([3, 3, 2], [1, 1], [2, 6])
    """
    groups = checked_groups(groups)
    if isinstance(groups, int):
        groups = min(groups, dim)
        return [dim // groups + (place < dim % groups) for place in range(groups)]
    if sum(groups) != dim:
        raise ValueError(
            f"groups: expected sizes of sum {dim}, the dimension, "
            f"got {list(groups)} of sum {sum(groups)}"
        )
    return list(groups)


def stacked(embeddings: Tensor, sizes: Sequence[int]) -> Tensor:
    """The groups as a table (batch, learners, largest size); shorter ones end in zeros.

    A view of the embeddings where all groups are of one size. Without a gradient where not.

    >>> stacked(torch.tensor([[3.0, 4.0, 9.0]]), [2, 1])
    tensor([[[3., 4.],
             [9., 0.]]])
    """
    if min(sizes) == max(sizes):
        return embeddings.reshape(len(embeddings), len(sizes), -1)
    table = embeddings.new_zeros(len(embeddings), len(sizes), max(sizes))
    for place, part in enumerate(embeddings.detach().split(list(sizes), 1)):
        table[:, place, : part.shape[1]] = part
    return table


def unstacked(table: Tensor, sizes: Sequence[int]) -> Tensor:
    """What `stacked` made of embeddings, as these were.

    >>> unstacked(torch.tensor([[[3.0, 4.0], [9.0, 0.0]]]), [2, 1])
    tensor([[3., 4., 9.]])
    """
    if min(sizes) == max(sizes):
        return table.flatten(1)
    return torch.cat([table[:, place, :size] for place, size in enumerate(sizes)], 1)


def unit_groups(embeddings: Tensor, sizes: Sequence[int]) -> Tensor:
    """Every group at the same length and the whole at length 1; a zero group stays zero.

    >>> unit_groups(torch.tensor([[3.0, 4.0, 9.0]]), [2, 1])
    tensor([[0.4243, 0.5657, 0.7071]])
    """
    if len(sizes) == 1:
        return unit(embeddings)
    parts = [unit(part) for part in embeddings.split(list(sizes), 1)]
    return torch.cat(parts, 1) / math.sqrt(len(parts))
