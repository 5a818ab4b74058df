"""Distance-weighted negatives in one GPU kernel, from the products of all pairs to the draws.

At usual batches the time of the sampling on a GPU is that of its launches: this one replaces a
score. The weights are those of `distance_weighted`, but for rounding, and are added up as whole
numbers:

    step_j = sum_{k <= j} round(2^30 w_k),   negative = first j with step_j > draw * step_N

Such sums do not depend on the order of the threads, never fall from column to column, and stand
still where a weight is 0: no draw ends in the anchor's own class.
"""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

import torch
from torch import Tensor

from kinspace.gpu_kernels import available, jit, power_of_2, tl

__all__ = ["beside_negatives", "ready"]

WARPS = 4
BLOCK = 2048  # columns of a tile at most
WIDE = 128  # draws looked up together at most
LIMIT = 2**16  # samples: evenly drawn, each still has 2^14 of the 2^30
FARTHEST = 3.0  # no distance is above 2, and what a larger cutoff does this one does


def ready(x: Tensor) -> bool:
    """Whether the kernel takes these samples."""
    return (
        available()
        and x.is_cuda
        and x.dtype == torch.float32
        and len(x) <= LIMIT
        and not torch.compiler.is_compiling()
    )


@torch.no_grad()
def beside_negatives(
    x: Tensor, index: Tensor, draws: Tensor, cutoffs: tuple[float, float]
) -> Tensor:
    """The table of classes (batch, class), and beside it the negatives: (batch, 2 class).

    x: rows of length 1 or 0. draws: one for each entry of the table, from 0 to below 1.
    """
    (size, dim), width = x.shape, index.shape[1]
    products = x @ x.T
    steps, both = torch.empty_like(products, dtype=torch.int32), index.new_empty(size, 2 * width)
    with torch.cuda.device_of(x):  # Triton launches on the current one
        _draw[(size,)](
            *(products, index.contiguous(), draws.contiguous(), steps, both),
            *(min(float(each), FARTHEST) ** 2 for each in cutoffs),
            *(size, dim, width),
            BLOCK=min(BLOCK, max(32 * WARPS, power_of_2(size))),
            WIDE=min(WIDE, power_of_2(width)),
            num_warps=WARPS,
        )
    return both


@jit
def _draw(products, index, draws, steps, both, cutoff, nonzero_cutoff, size, dim, width, BLOCK: tl.constexpr, WIDE: tl.constexpr):  # fmt: skip  # noqa: E501, PLR0913
    """All draws of one anchor; launched by `beside_negatives`. The cutoffs are squared.

    products (size, size) are used up, but for the diagonal, which every program reads.
    """
    i = tl.program_id(0)
    row = i.to(tl.int64)
    own = products + row * size
    steps += row * size
    for first in range(0, width, WIDE):
        p = first + tl.arange(0, WIDE)
        same = tl.load(index + row * width + p, p < width, i)
        tl.store(both + row * width * 2 + p, same, p < width)
        tl.store(own + same, float("-inf"), same != i)
    tl.debug_barrier()
    # The first tile stays at hand; the logs of further ones take the place of their products.
    j = tl.arange(0, BLOCK)
    nearby = _logs(products, i, j, size, dim, cutoff, nonzero_cutoff)
    top = _top(nearby, -3.4028234663852886e38)
    total = tl.sum(tl.exp(nearby - top), 0)
    for first in range(BLOCK, size, BLOCK):
        k = first + j
        logs = _logs(products, i, k, size, dim, cutoff, nonzero_cutoff)
        tl.store(own + k, logs, (k < size) & (k != i))
        higher = _top(logs, top)
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(logs - higher), 0)
        top = higher
    tl.debug_barrier()
    scale = 1073741824.0 / total
    passed = _add_up(steps, j, nearby, top, scale, 0, size)
    for first in range(BLOCK, size, BLOCK):
        k = first + j
        logs = tl.load(own + k, (k < size) & (k != i), float("-inf"))
        passed = _add_up(steps, k, logs, top, scale, passed, size)
    tl.debug_barrier()
    for first in range(0, width, WIDE):
        p = first + tl.arange(0, WIDE)
        draw = tl.load(draws + row * width + p, p < width, 0.0)
        # in units of 2^-24, the last but one of them below 1 at most
        draw = tl.minimum((draw * 16777216.0).to(tl.int64), 16777214)
        found = _search(steps, (draw * passed >> 24).to(tl.int32), size, BLOCK, WIDE)
        # the last where no weight is a number
        tl.store(both + row * width * 2 + width + p, tl.minimum(found, size - 1), p < width)


@jit
def _logs(products, i, j, size, dim, cutoff, nonzero_cutoff):
    """The log weights of some columns: -infinite in the own class, which is marked so, and beyond.

    So are those of products that are not numbers. The diagonal has the squared lengths, of 1 or 0.
    Negatives past the second cutoff have the lowest finite one: as good as weight 0 beside any
    other, and equal weights where there is no other.
    """
    inside = j < size
    product = tl.load(products + i.to(tl.int64) * size + j, inside, float("-inf"))
    step = tl.full((), 1, tl.int64) * size + 1  # of the diagonal
    length = tl.sqrt_rn(tl.load(products + i * step))
    lengths = tl.sqrt_rn(tl.load(products + j * step, inside, 0.0))
    squares = lengths - 2 * product + length
    clipped = tl.minimum(tl.maximum(squares, cutoff), 3.9999995231628418)
    logs = tl.log(clipped) * ((2 - dim) * 0.5) + tl.log(1 - 0.25 * clipped) * ((3 - dim) * 0.5)
    logs = tl.where(squares >= nonzero_cutoff, -3.4028234663852886e38, logs)
    return tl.where((product > float("-inf")) & (j != i), logs, float("-inf"))


@jit
def _top(logs, least):
    return tl.maximum(tl.max(logs, 0), least)


@jit
def _add_up(steps, j, logs, top, scale, passed, size):
    """Write the sums of the weights up to each of some columns; returns the last of them."""
    shares = tl.exp(logs - top) * scale
    weights = tl.where(shares > 0, shares + 0.5, 0.0).to(tl.int32)  # 0 of what is not a number
    tl.store(steps + j, tl.cumsum(weights, 0) + passed, j < size)
    return passed + tl.sum(weights, 0)


@jit
def _search(steps, wanted, size, BLOCK: tl.constexpr, WIDE: tl.constexpr):
    """How many steps are not above each of the wanted: the place of the first one above, or size.

    By halves, the first of them more than half of all.
    """
    half = tl.full((), BLOCK, tl.int32)
    while half * 2 <= size:
        half *= 2
    found = tl.zeros((WIDE,), tl.int32)
    while half > 0:
        ahead = found + half
        step = tl.load(steps + ahead - 1, ahead <= size, 2147483647)
        found = tl.where(step <= wanted, ahead, found)
        half = half // 2
    return found
