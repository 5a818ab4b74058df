"""Embeddings whose dimensions are split into parts, each a small embedding of its own.

An ensemble within one vector (BIER, HDC, ABE). Parts brought to one length count alike in the
cosine of the whole, which is then the mean of the parts' cosines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral

import torch
from torch import Tensor
from torch.nn import functional

from kinspace._core import checks
from kinspace._core.normalization import unit

__all__ = ["checked_groups", "group_sizes", "stack_groups", "unit_groups"]


def checked_groups(groups: int | Sequence[int]) -> int | tuple[int, ...]:
    """A number of groups of dimensions, or the size of each.

    >>> checked_groups(3), checked_groups([96, 160, 256])
    (3, (96, 160, 256))
    """
    if isinstance(groups, (list, tuple)) and groups:
        return tuple(checks.integer("groups", size, at_least=1) for size in groups)
    if isinstance(groups, Integral):
        return checks.integer("groups", groups, at_least=1)
    raise ValueError(f"groups: expected a number of groups or a list of sizes, got {groups!r}")


def group_sizes(groups: int | Sequence[int], dim: int) -> list[int]:
    """The sizes of the groups of so many dimensions.

    A number shares them out evenly, one more to the first groups where it does not come out even;
    there are never more groups than dimensions.

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


def stack_groups(embeddings: Tensor, sizes: Sequence[int]) -> Tensor:
    """The groups as a table (batch, groups, largest size); shorter ones end in zeros.

    >>> stack_groups(torch.tensor([[3.0, 4.0, 9.0]]), [2, 1])
    tensor([[[3., 4.],
             [9., 0.]]])
    """
    parts = embeddings.split(list(sizes), 1)
    widest = max(sizes)
    return torch.stack([functional.pad(part, (0, widest - part.shape[1])) for part in parts], 1)


def unit_groups(embeddings: Tensor, sizes: Sequence[int]) -> Tensor:
    """Every group at the same length and the whole at length 1; a zero group stays zero.

    >>> unit_groups(torch.tensor([[3.0, 4.0, 9.0]]), [2, 1])
    tensor([[0.4243, 0.5657, 0.7071]])
    """
    if len(sizes) == 1:
        return unit(embeddings)
    parts = [unit(part) for part in embeddings.split(list(sizes), 1)]
    return torch.cat(parts, 1) / math.sqrt(len(parts))
