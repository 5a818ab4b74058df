"""Max pooling and local response normalization as one GPU kernel each, for maps in channels-last.

PyTorch's max pooling keeps an eight-byte index for each value and its backward pass searches for
them; normalization across channels takes five to six passes over the map. Together they were 13 of
28 ms of a GoogLeNet step on an H200 (batch 144 of 227 px, bfloat16). Here the place of the
maximum is one byte, and each direction reads and writes its maps once.

Where `ready` is false PyTorch's own operations are used, with the same values.
"""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

import torch
from torch import Tensor

from kinspace.gpu_kernels import available, jit, tl

__all__ = ["lrn_backward", "lrn_forward", "max_pool_backward", "max_pool_forward", "ready"]

BLOCK = 1024
LIMIT = 2**31 - 2**22  # values: kernels count in 32 bits, and past the end by a tile a program


def ready(x: Tensor) -> bool:
    """Whether the kernels here take this map (batch, channels, height, width)."""
    return (
        available()
        and x.is_cuda
        and x.dtype in (torch.float32, torch.bfloat16, torch.float16)
        and 0 < x.numel() < LIMIT
        and x.is_contiguous(memory_format=torch.channels_last)
        and not torch.compiler.is_compiling()
    )


def _grid(values: int) -> tuple[int]:
    return ((values + BLOCK - 1) // BLOCK,)


def max_pool_forward(
    x: Tensor, size: tuple[int, int], stride: int, padding: int
) -> tuple[Tensor, Tensor]:
    """Largest value of each 3x3 window, and its place 0 .. 8 in it; size: of the result."""
    batch, channels, height, width = x.shape
    result = torch.empty(
        (batch, channels, *size), dtype=x.dtype, device=x.device, memory_format=torch.channels_last
    )
    place = torch.empty_like(result, dtype=torch.uint8)
    _pool[_grid(result.numel())](
        x, result, place, result.numel(), channels, height, width, *size, stride, padding, BLOCK
    )
    return result, place


def max_pool_backward(
    grad: Tensor, place: Tensor, shape: torch.Size, stride: int, padding: int
) -> Tensor:
    """The slope by the map of this shape: each window's goes to the place of its maximum."""
    grad = grad.contiguous(memory_format=torch.channels_last)
    result = torch.empty(
        shape, dtype=grad.dtype, device=grad.device, memory_format=torch.channels_last
    )
    _, channels, height, width = shape
    _unpool[_grid(result.numel())](
        grad, place, result, result.numel(), channels, height, width, *grad.shape[2:], stride,
        padding, BLOCK,
    )  # fmt: skip
    return result


def lrn_forward(x: Tensor, size: int, alpha: float, beta: float, k: float) -> Tensor:
    """x s^-beta, s = k + alpha times the mean square of the window of channels."""
    result = torch.empty_like(x)
    _normalize[_grid(x.numel())](
        x, result, x.numel(), x.shape[1], alpha / size, -beta, k, size // 2, BLOCK
    )
    return result


def lrn_backward(x: Tensor, grad: Tensor, size: int, alpha: float, beta: float, k: float) -> Tensor:
    """The slope by x for the slope by the result."""
    grad = grad.contiguous(memory_format=torch.channels_last)
    result, pulls = torch.empty_like(x), torch.empty_like(x, dtype=torch.float32)
    options = (x.shape[1], alpha / size, -beta, k, size // 2, BLOCK)
    _pulls[_grid(x.numel())](x, grad, pulls, x.numel(), *options)
    _normalize_back[_grid(x.numel())](x, grad, pulls, result, x.numel(), *options)
    return result


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
        better = valid & ((value > best) | (value != value))  # no number wins, as in PyTorch
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
        slope = tl.load(grad + source, mask=valid, other=0.0).to(tl.float32)
        total += tl.where(mine, slope, 0.0)
    tl.store(result + at, total.to(result.dtype.element_ty), mask=inside)


@jit
def _sum_of_squares(x, at, inside, channels, weight, k, AROUND: tl.constexpr):
    channel = at % channels
    total = tl.zeros_like(at).to(tl.float32)
    for step in tl.static_range(2 * AROUND + 1):
        other = channel + step - AROUND
        valid = inside & (other >= 0) & (other < channels)
        value = tl.load(x + at + step - AROUND, mask=valid, other=0.0).to(tl.float32)
        total += value * value
    return k + weight * total


@jit
def _normalize(x, result, values, channels, weight, power, k, AROUND: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip  # noqa: E501, PLR0913
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < values
    scale = _sum_of_squares(x, at, inside, channels, weight, k, AROUND)
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    value *= tl.exp2(power * tl.log2(scale))
    tl.store(result + at, value.to(result.dtype.element_ty), mask=inside)


@jit
def _pulls(x, grad, pulls, values, channels, weight, power, k, AROUND: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip  # noqa: E501, PLR0913
    """g_i x_i s_i^(-beta - 1)."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < values
    scale = _sum_of_squares(x, at, inside, channels, weight, k, AROUND)
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    value *= tl.load(grad + at, mask=inside, other=0.0).to(tl.float32)
    value *= tl.exp2((power - 1) * tl.log2(scale))
    tl.store(pulls + at, value, mask=inside)


@jit
def _normalize_back(x, grad, pulls, result, values, channels, weight, power, k, AROUND: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip  # noqa: E501, PLR0913
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < values
    scale = _sum_of_squares(x, at, inside, channels, weight, k, AROUND)
    channel = at % channels
    around = tl.zeros((BLOCK,), tl.float32)
    for step in tl.static_range(2 * AROUND + 1):
        other = channel + step - AROUND
        valid = inside & (other >= 0) & (other < channels)
        around += tl.load(pulls + at + step - AROUND, mask=valid, other=0.0)
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    slope = tl.load(grad + at, mask=inside, other=0.0).to(tl.float32)
    slope *= tl.exp2(power * tl.log2(scale))
    slope += 2 * weight * power * value * around
    tl.store(result + at, slope.to(result.dtype.element_ty), mask=inside)
