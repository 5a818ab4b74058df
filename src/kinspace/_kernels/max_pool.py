"""Max pooling over 3x3 windows of maps in channels-last, on a GPU.

PyTorch's keeps an eight-byte index for each value and its backward pass searches for them. Here the
place of the maximum is one byte, and each direction reads and writes its maps once.
"""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kinspace._kernels._triton import jit, takes_map, tl
from kinspace._kernels.bias_relu import empty_map

__all__ = ["forward", "supports", "vjp"]

BLOCK = 1024


def supports(x: Tensor, *, stride: int, padding: int = 0) -> bool:
    """Whether the kernel takes this map."""
    return takes_map(x)


def forward(x: Tensor, *, stride: int, padding: int = 0) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """The largest value of each window; kept beside x: its place 0 .. 8 in the window."""
    batch, channels, height, width = x.shape
    rows, columns = (_windows(length, stride, padding) for length in (height, width))
    result = torch.empty(
        (batch, channels, rows, columns),
        dtype=x.dtype,
        device=x.device,
        memory_format=torch.channels_last,
    )
    place = torch.empty_like(result, dtype=torch.uint8)
    _pool[_grid(result)](
        x, result, place, result.numel(), channels, height, width, rows, columns, stride, padding,
        BLOCK,
    )  # fmt: skip
    return result, (x, place)


def vjp(
    saved: Sequence[Tensor], grads: Sequence[Tensor], *, stride: int, padding: int = 0
) -> tuple[Tensor]:
    """The gradient by the map: each window's goes to the place of its maximum."""
    x, place = saved
    grad = grads[0].contiguous(memory_format=torch.channels_last)
    result = empty_map(x, x.shape[1])
    _, channels, height, width = x.shape
    _unpool[_grid(result)](
        grad, place, result, result.numel(), channels, height, width, *grad.shape[2:], stride,
        padding, BLOCK,
    )  # fmt: skip
    return (result,)


def _windows(length: int, stride: int, padding: int) -> int:
    """Windows along one side; the last one starts inside the map."""
    windows = -(-max(length + 2 * padding - 3, 0) // stride) + 1
    return windows - 1 if (windows - 1) * stride >= length + padding else windows


def _grid(values: Tensor) -> tuple[int]:
    return ((values.numel() + BLOCK - 1) // BLOCK,)


@jit
def _pool(x, result, place, values, channels, height, width, rows, columns, stride: tl.constexpr, padding: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip  # noqa: E501, PLR0913
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < values
    pixel = at // channels
    channel = at - pixel * channels
    line = pixel // columns
    column = pixel - line * columns
    picture = line // rows
    top = (line - picture * rows) * stride - padding
    left = column * stride - padding
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    where = tl.zeros((BLOCK,), tl.int32)
    for step in tl.static_range(9):
        row, side = top + step // 3, left + step % 3
        valid = inside & (row >= 0) & (row < height) & (side >= 0) & (side < width)
        source = ((picture * height + row) * width + side) * channels + channel
        value = tl.load(x + source, mask=valid, other=float("-inf")).to(tl.float32)
        better = valid & ((value > best) | (value != value))  # NaN wins, as in PyTorch
        best = tl.where(better, value, best)
        where = tl.where(better, step, where)
    tl.store(result + at, best.to(result.dtype.element_ty), mask=inside)
    tl.store(place + at, where.to(tl.uint8), mask=inside)


@jit
def _unpool(grad, place, result, values, channels, height, width, rows, columns, stride: tl.constexpr, padding: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip  # noqa: E501, PLR0913
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < values
    pixel = at // channels
    channel = at - pixel * channels
    line = pixel // width
    column = pixel - line * width + padding
    picture = line // height
    row = line - picture * height + padding
    total = tl.zeros((BLOCK,), tl.float32)
    for step in tl.static_range(9):
        high, wide = row - step // 3, column - step % 3
        up, over = high // stride, wide // stride
        valid = inside & (high >= 0) & (wide >= 0) & (up < rows) & (over < columns)
        valid = valid & (up * stride == high) & (over * stride == wide)
        source = ((picture * rows + up) * columns + over) * channels + channel
        mine = tl.load(place + source, mask=valid, other=255) == step
        # read whether mine or not: eight neighbors in one instruction
        gradient = tl.load(grad + source, mask=valid, other=0.0).to(tl.float32)
        total += tl.where(mine, gradient, 0.0)
    tl.store(result + at, total.to(result.dtype.element_ty), mask=inside)
