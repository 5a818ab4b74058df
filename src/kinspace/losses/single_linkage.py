"""Single linkage: how far apart two points are when of a chain only its longest step counts.

    h(p, q) = min over chains p = c_0, c_1, ..., c_n = q of max_k d(c_k, c_{k+1})

It is the height at which the tree of single-linkage clustering joins p and q. Floyd and Warshall's
algorithm lets chains go through one point after another:

    h(p, q) <- min(h(p, q), max(h(p, c), h(c, q)))    for each c

Here it is a block of points at a time: on a GPU, where each operation waits for the one before, a
step through one point takes as long as through many.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kinspace._core.tensor_ops import is_traced
from kinspace._core.vectors import fill_diagonal

__all__ = ["joining_heights"]

BLOCK = 32  # points at a time: their table has this many numbers for each pair of points


def joining_heights(distances: Tensor, block: int | None = None) -> Tensor:
    """h of every two points, (points, points), from their distances; to itself -inf, no step.

    >>> joining_heights(torch.tensor([[0.0, 1.0, 9.0], [1.0, 0.0, 2.0], [9.0, 2.0, 0.0]]))
    tensor([[-inf, 1., 2.],
            [1., -inf, 2.],
            [2., 2., -inf]])
    """
    if block is None:
        block = 1 if distances.is_cpu and not is_traced(distances) else BLOCK
    heights = fill_diagonal(distances, -math.inf)
    for first in range(0, len(heights), block):
        stops = slice(first, first + block)
        around = _through(heights[:, stops], heights[stops, stops], heights[stops])
        heights = torch.minimum(heights, around)
    return heights


def _through(before: Tensor, within: Tensor, after: Tensor) -> Tensor:
    """Of the best chains to (n, stops), between (stops, stops) and from (stops, n) some points."""
    if len(within) == 1:
        return torch.maximum(before, after)
    for _ in range((len(within) - 1).bit_length()):
        within = _joined(within, within)  # chains of twice as many steps
    return _joined(_joined(before, within), after)


def _joined(first: Tensor, second: Tensor) -> Tensor:
    """Of the best chains made of one of the first (n, m) and one of the second (m, k): (n, k)."""
    return torch.maximum(first[:, :, None], second).amin(1)
