"""All squared distances between two sets of vectors from their differences, on a GPU.

    S_ij = sum_d (x_id - y_jd)^2
    dx_i = 2 sum_j G_ij (x_i - y_j),   dy_j = 2 sum_i G_ij (y_j - x_i)

The formula takes a matrix product and looks for close pairs, to compute them again: the host has to
wait for the GPU there, and what it prepares after that is not hidden behind the network. That is
1.5 to 3 of the 12 to 14 ms of a GoogLeNet step on an H200 (batch 128 of 227 px, bfloat16). Here
every pair is exact at once and nothing is read. The differences stay in registers, a tile of rows
by rows by dimensions at a time.

Differences cannot use the matrix units: of 1,024 vectors of 512 dimensions they take 2.4 ms longer
than the formula with its wait, so tables of more than `WORK` differences are left to the formula.
"""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kinspace._kernels._triton import LIMIT, available_on, jit, tl

__all__ = ["forward", "supports", "vjp"]

TILE = 32  # rows of either set
DIMENSIONS = 16  # at a time
WARPS = 8
WORK = 2**27  # differences: 512 x 512 vectors of 512 dimensions, 1,024 x 1,024 of 128


def supports(x: Tensor, y: Tensor, *, own: bool) -> bool:
    """Whether the kernel takes these."""
    return (
        available_on(x)
        and x.dtype == y.dtype == torch.float32
        and x.device == y.device
        and 0 < len(x) * len(y) * x.shape[-1] <= WORK
        and x.numel() < LIMIT
        and y.numel() < LIMIT
    )


def forward(x: Tensor, y: Tensor, *, own: bool) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """The table (rows of x, rows of y); own: of one set, whose diagonal is 0 whatever x is."""
    x, y = x.contiguous(), y.contiguous()
    table = x.new_empty(len(x), len(y))
    grid = (-(-len(x) // TILE), -(-len(y) // TILE))
    _table[grid](
        x, y, table, len(x), len(y), x.shape[1], int(own), TILE, DIMENSIONS, num_warps=WARPS
    )
    return table, (x, y)


def vjp(saved: Sequence[Tensor], grads: Sequence[Tensor], *, own: bool) -> tuple[Tensor, Tensor]:
    """The gradients by both sets."""
    x, y = saved
    return _pulled(x, y, grads[0]), _pulled(y, x, grads[0].T)


def _pulled(x: Tensor, y: Tensor, grad: Tensor) -> Tensor:
    result = torch.empty_like(x)
    grid = (-(-len(x) // TILE), -(-x.shape[1] // DIMENSIONS))
    _gradient[grid](
        x, y, grad, result, len(x), len(y), x.shape[1], *grad.stride(), TILE, DIMENSIONS,
        num_warps=WARPS,
    )  # fmt: skip
    return result


@jit
def _table(x, y, table, rows, columns, dim, own: tl.constexpr, TILE: tl.constexpr, DIMENSIONS: tl.constexpr):  # fmt: skip  # noqa: E501, PLR0913
    row = tl.program_id(0) * TILE + tl.arange(0, TILE)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    total = tl.zeros((TILE, TILE), tl.float32)
    for first in range(0, dim, DIMENSIONS):
        at = first + tl.arange(0, DIMENSIONS)
        inside = (at < dim)[None, :]
        mine = tl.load(x + row[:, None] * dim + at[None, :], mask=(row < rows)[:, None] & inside, other=0.0)  # fmt: skip  # noqa: E501
        other = tl.load(y + column[:, None] * dim + at[None, :], mask=(column < columns)[:, None] & inside, other=0.0)  # fmt: skip  # noqa: E501
        apart = mine[:, None, :] - other[None, :, :]
        total += tl.sum(apart * apart, 2)
    if own:
        total = tl.where(row[:, None] == column[None, :], 0.0, total)
    mask = (row < rows)[:, None] & (column < columns)[None, :]
    tl.store(table + row[:, None] * columns + column[None, :], total, mask=mask)


@jit
def _gradient(x, y, grad, result, rows, columns, dim, grad_rows, grad_columns, TILE: tl.constexpr, DIMENSIONS: tl.constexpr):  # fmt: skip  # noqa: E501, PLR0913
    row = tl.program_id(0) * TILE + tl.arange(0, TILE)
    at = tl.program_id(1) * DIMENSIONS + tl.arange(0, DIMENSIONS)
    inside = (at < dim)[None, :]
    mask = (row < rows)[:, None] & inside
    mine = tl.load(x + row[:, None] * dim + at[None, :], mask=mask, other=0.0)
    total = tl.zeros((TILE, DIMENSIONS), tl.float32)
    for first in range(0, columns, TILE):
        column = first + tl.arange(0, TILE)
        other = tl.load(y + column[:, None] * dim + at[None, :], mask=(column < columns)[:, None] & inside, other=0.0)  # fmt: skip  # noqa: E501
        both = (row < rows)[:, None] & (column < columns)[None, :]
        weight = tl.load(grad + row[:, None] * grad_rows + column[None, :] * grad_columns, mask=both, other=0.0)  # fmt: skip  # noqa: E501
        apart = mine[:, None, :] - other[None, :, :]
        # a weight of 0 takes nothing, however far the pair is apart
        total += tl.sum(tl.where(weight[:, :, None] == 0, 0.0, weight[:, :, None] * apart), 1)
    tl.store(result + row[:, None] * dim + at[None, :], 2 * total, mask=mask)
