"""The tree and the hinges of the hierarchical triplet loss, a GPU kernel each.

At usual batches the time of a loss on a GPU is that of its launches, and at large ones that of its
passes over tables of all pairs. `nodes` replaces a score of launches, `hinges` two score and a
dozen passes. The result is that of the operations in `hierarchical_triplet`, but for rounding; and
as in `distances`, rows that are close are done by differences, in the value and in the gradient.
"""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

import torch
from torch import Tensor

from kinspace.gpu_kernels import available, jit, power_of_2, tl
from kinspace.product_form import CLOSE

__all__ = ["WIDEST", "hinges", "nodes", "ready"]

WIDEST = 64  # samples of a class that fit a tile
TILE = 1024  # pairs of a tile; of the classes, where threads are more, eight times as many
DEPTH = 4  # columns of the embeddings taken together where rows are subtracted


def ready(x: Tensor) -> bool:
    """Whether the kernels take these embeddings, if no class has more than WIDEST samples."""
    return x.is_cuda and available() and not torch.compiler.is_compiling()


def nodes(products: Tensor, lengths: Tensor, start: Tensor, levels: int) -> Tensor:
    """The node of each class, a number, on every level but the last: (levels, classes).

    products: those of the classes' means; lengths: the mean squared length in each class.
    """
    size = len(products)
    found = torch.empty((levels, size), dtype=torch.int32, device=products.device)
    columns = min(power_of_2(size), TILE // 2)
    rows = min(power_of_2(size), 8 * TILE // columns)
    with torch.cuda.device_of(products):  # Triton launches on the current one
        _join[(levels,)](
            products, lengths, start, found, size, 1 / levels, rows, columns, num_warps=16
        )  # fmt: skip
    return found


def hinges(
    products: Tensor,
    x: Tensor,
    norms: Tensor,
    groups: tuple[Tensor, Tensor, Tensor],
    tree: tuple[Tensor, Tensor, Tensor],
    margin: float,
    widest: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """The sum of each anchor's hinges, and their slope: by the distances, and of close rows by x.

    products: of the rows around their mean, whose lengths are the norms. groups: the class of each
    sample, the samples by class, and where each class begins. tree: the nodes, each class's spread,
    and the lowest threshold.
    """
    size, dim = x.shape
    totals, signs, pulls = torch.empty_like(norms), torch.empty_like(products), torch.zeros_like(x)
    width = max(power_of_2(widest), 2)
    block = min(power_of_2(size), TILE // width, TILE // DEPTH)
    with torch.cuda.device_of(x):
        _hinges[(size,)](
            products, x, norms, *groups, *tree, totals, signs, pulls, size, dim,
            tree[0].shape[1], len(tree[0]), 1 / len(tree[0]), margin, CLOSE, width, block, DEPTH,
            num_warps=4,
        )  # fmt: skip
    return totals, signs, pulls


@jit
def _step(start, SHARE: tl.constexpr):
    """From a threshold to the next; SHARE: one by the number of levels."""
    return tl.maximum(4.0 - start, 0.0) * SHARE


@jit
def _join(products, lengths, start, found, size, SHARE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # fmt: skip  # noqa: E501, PLR0913
    """The parts that pairs below a level's threshold join: each class has a lower one of its part.

    A class takes the lowest number among its neighbors', and so does the class it had before; then
    each takes the number of the one it has. Until nothing changes: each part has one number then.
    """
    low = tl.load(start)
    threshold = low + tl.program_id(0) * _step(low, SHARE)
    found += tl.program_id(0) * size
    for first in range(0, size, COLUMNS):
        p = first + tl.arange(0, COLUMNS)
        tl.store(found + p, p, p < size)
    tl.debug_barrier()
    changes = 1
    while changes > 0:
        changes = 0
        for first in range(0, size, ROWS):
            p = first + tl.arange(0, ROWS)
            own = tl.load(found + p, p < size, 0)
            own_length = tl.load(lengths + p, p < size, 0.0)
            least = tl.zeros((ROWS, COLUMNS), tl.int32) + size
            for begin in range(0, size, COLUMNS):
                q = begin + tl.arange(0, COLUMNS)
                both = (p < size)[:, None] & (q < size)[None, :]
                at = p.to(tl.int64)[:, None] * size + q[None, :]
                product = tl.load(products + at, both, 0.0)
                other = tl.load(lengths + q, q < size, 0.0)
                apart = tl.maximum(own_length[:, None] + other[None, :] - 2 * product, 0.0)
                numbers = tl.load(found + q, q < size, size)[None, :]
                joined = both & (apart < threshold)
                least = tl.minimum(least, tl.where(joined, numbers, size))
            lowest = tl.min(least, 1)
            lower = (p < size) & (lowest < own)
            changes += tl.sum(lower.to(tl.int32), 0)
            tl.debug_barrier()  # all threads have read the same, and go on alike
            tl.atomic_min(found + own, lowest, lower, sem="relaxed")
            tl.atomic_min(found + p, lowest, lower, sem="relaxed")
            tl.debug_barrier()
        for first in range(0, size, COLUMNS):
            p = first + tl.arange(0, COLUMNS)
            own = tl.load(found + p, p < size, 0)
            tl.store(found + p, tl.load(found + own, p < size, 0), p < size)
        tl.debug_barrier()


@jit
def _hinges(products, x, norms, place, order, starts, nodes, spreads, start, totals, signs, pulls, size, dim, classes, levels, SHARE: tl.constexpr, MARGIN: tl.constexpr, CLOSE: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr, DEPTH: tl.constexpr):  # fmt: skip  # noqa: E501, PLR0913
    """All triplets of one anchor: a tile (negatives, positives) at a time."""
    i = tl.program_id(0)
    row = i.to(tl.int64) * size
    own = tl.load(place + i)
    slots = tl.load(starts + own) + tl.arange(0, WIDTH)
    p = tl.load(order + slots, slots < tl.load(starts + own + 1), i)
    positive = p != i
    reach, close = _distances(products + row, x, norms, i, p, positive, dim, CLOSE, DEPTH)
    thresholds = tl.where(positive, reach, float("-inf"))
    low = tl.load(start)
    step = _step(low, SHARE)
    least = low + MARGIN - 2 * tl.load(spreads + own)
    total = tl.zeros_like(thresholds)
    below = tl.zeros((WIDTH,), tl.int32)
    for first in range(0, size, BLOCK):
        j = first + tl.arange(0, BLOCK)
        group = tl.load(place + j, j < size, own)
        negative = group != own
        apart, near = _distances(products + row, x, norms, i, j, negative, dim, CLOSE, DEPTH)
        level = tl.zeros((BLOCK,), tl.int32)
        for each in range(levels):
            node = nodes + each * classes
            level += (tl.load(node + group) != tl.load(node + own)).to(tl.int32)
        nearer = tl.where(negative, apart - (least + step * level), float("inf"))
        hinge = thresholds[None, :] - nearer[:, None]
        active = (hinge > 0).to(tl.int32)
        total += tl.sum(tl.where(hinge > 0, hinge, 0.0), 0)
        below += tl.sum(active, 0)
        crossed = -tl.sum(active, 1).to(apart.dtype)
        tl.store(signs + row + j, tl.where(near, 0.0, crossed), j < size)
        if tl.max(near.to(tl.int32), 0) > 0:
            _pull(x, pulls, i, j, tl.where(near, crossed, 0.0), dim, DEPTH)
    tl.debug_barrier()  # the positives had a 0 so far
    counts = below.to(reach.dtype)
    tl.store(signs + row + p, tl.where(close, 0.0, counts), positive)
    if tl.max(close.to(tl.int32), 0) > 0:
        _pull(x, pulls, i, p, tl.where(close, counts, 0.0), dim, DEPTH)
    tl.store(totals + i, tl.sum(total, 0))


@jit
def _distances(products, x, norms, i, j, wanted, dim, CLOSE: tl.constexpr, DEPTH: tl.constexpr):  # fmt: skip  # noqa: E501, PLR0913
    """Squared, of i to each wanted j, and which of them are close; products: the row of i."""
    own = tl.load(norms + i)
    other = tl.load(norms + j, wanted, 0.0)
    bound = own * own + other * other
    apart = tl.maximum(bound - 2 * tl.load(products + j, wanted, 0.0), 0.0)
    close = wanted & (apart <= CLOSE * bound)
    if tl.max(close.to(tl.int32), 0) > 0:
        exact = tl.zeros_like(apart)
        for first in range(0, dim, DEPTH):
            gap = _gap(x, i, j, close, first, dim, DEPTH)
            exact += tl.sum(gap * gap, 1)
        apart = tl.where(close, exact, apart)
    return apart, close


@jit
def _gap(x, i, j, wanted, first, dim, DEPTH: tl.constexpr):
    """Some columns of x_i - x_j, (all j, DEPTH); 0 where not wanted."""
    k = first + tl.arange(0, DEPTH)
    both = wanted[:, None] & (k < dim)[None, :]
    own = tl.load(x + i.to(tl.int64) * dim + k, k < dim, 0.0)[None, :]
    return tl.where(both, own - tl.load(x + j.to(tl.int64)[:, None] * dim + k, both, 0.0), 0.0)


@jit
def _pull(x, pulls, i, j, weights, dim, DEPTH: tl.constexpr):
    """Add w (x_i - x_j) to the pull of i, and take it from that of j."""
    used = weights != 0
    for first in range(0, dim, DEPTH):
        k = first + tl.arange(0, DEPTH)
        flow = weights[:, None] * _gap(x, i, j, used, first, dim, DEPTH)
        both = used[:, None] & (k < dim)[None, :]
        tl.atomic_add(pulls + j.to(tl.int64)[:, None] * dim + k, -flow, both, sem="relaxed")
        own = pulls + i.to(tl.int64) * dim + k
        tl.atomic_add(own, tl.sum(flow, 0), k < dim, sem="relaxed")
