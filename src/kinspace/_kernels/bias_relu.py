"""A convolution's bias and the ReLU after it, in one pass over the map each way.

    z = max(y + b, 0),   dy = g where z > 0 else 0,   db = sum of dy over all pixels

PyTorch takes two passes forward and two backward, of which the sum for the bias is a slow one: 2.1
of 17.1 ms of a GoogLeNet step on an H200 (batch 144 of 227 px, bfloat16). Here the pass that makes
dy adds it up: each program keeps float32 sums of the pixels it has seen, and PyTorch adds the
programs' sums. The order is always the same, and so is the result.

z may be written to where it is wanted: the parts of a map that one convolution made for several
branches (`split_bias_relu`), and the parts of a concatenation (`join_bias_relu`).

A program's tile is some pixels by up to 64 channels, which lie side by side in channels-last. The
pixels of a part lie apart by the channels of the whole.
"""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kinspace._kernels._triton import LIMIT, jit, power_of_2, takes_map, tl

__all__ = ["empty_map", "forward", "supports", "vjp", "vjp_formula", "write", "write_gradient"]

TILE = 4096  # values of a tile
COLUMNS = 64  # at most this many channels of it
PROGRAMS = 528  # of the backward pass: four for each multiprocessor of an H200
WARPS = 8
UNIT = 8  # channels that are read at once, if all numbers of channels are multiples of it


def supports(y: Tensor, bias: Tensor) -> bool:
    """Whether the kernel takes this map."""
    return takes_map(y)


def forward(y: Tensor, bias: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """max(y + bias, 0)."""
    result = empty_map(y, y.shape[1])
    write(y, bias, result)
    return result, (result,)


def vjp(saved: Sequence[Tensor], grads: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The gradients by the map and by the bias."""
    gradient = torch.empty_like(saved[0])
    return gradient, write_gradient(grads[0], saved[0], gradient)


def vjp_formula(saved: Sequence[Tensor], grads: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """The same in plain PyTorch."""
    gradient = grads[0].masked_fill(saved[0] <= 0, 0)
    return gradient, gradient.float().sum((0, 2, 3))


def empty_map(like: Tensor, channels: int) -> Tensor:
    """A map in channels-last of so many channels, else like this one."""
    batch, _, height, width = like.shape
    return torch.empty(
        (batch, channels, height, width),
        dtype=like.dtype,
        device=like.device,
        memory_format=torch.channels_last,
    )


def _tile(channels: int) -> tuple[int, int, int]:
    """Pixels and channels of a tile, and how many tiles side by side hold all channels."""
    columns = min(COLUMNS, power_of_2(channels))
    return TILE // columns, columns, -(-channels // columns)


def _by_pixel(grad: Tensor) -> Tensor:
    """(pixels, channels), each pixel's channels side by side; a copy only of what lies otherwise.

    Pixels may lie apart by more than their channels, as they do in a part of a concatenation.
    """
    pixels = grad.permute(0, 2, 3, 1).flatten(0, 2)
    if pixels.stride(1) != 1 or len(pixels) * pixels.stride(0) >= LIMIT:
        return pixels.contiguous()
    return pixels


def _in_units(*numbers: int) -> tuple[int, ...]:
    """The unit, and the numbers of channels counted in it."""
    unit = 1 if any(number % UNIT for number in numbers) else UNIT
    return unit, *(number // unit for number in numbers)


def write(source: Tensor, bias: Tensor, target: Tensor) -> None:
    """max(source + bias, 0) to the target; both in channels-last, or a part of such a map."""
    pixels, places = _by_pixel(source), target.permute(0, 2, 3, 1).flatten(0, 2)
    rows, columns, blocks = _tile(len(bias))
    _forward[(-(-len(pixels) // rows) * blocks,)](
        pixels, bias.contiguous(), places, len(pixels),
        *_in_units(len(bias), pixels.stride(0), places.stride(0)), rows, columns, num_warps=WARPS,
    )  # fmt: skip


def write_gradient(grad: Tensor, result: Tensor, gradient: Tensor) -> Tensor:
    """Write the gradient by the map; returns its sums over the pixels, (channels,) in float32."""
    pixels = _by_pixel(grad)
    results, gradients = (map_.permute(0, 2, 3, 1).flatten(0, 2) for map_ in (result, gradient))
    rows, columns, blocks = _tile(pixels.shape[1])
    programs = min(-(-len(pixels) // rows), max(PROGRAMS // blocks, 1))
    sums = pixels.new_empty((programs, pixels.shape[1]), dtype=torch.float32)
    strides = [tensor.stride(0) for tensor in (pixels, results, gradients)]
    _backward[(programs * blocks,)](
        pixels, results, gradients, sums, len(pixels), *_in_units(pixels.shape[1], *strides), rows,
        columns, num_warps=WARPS,
    )  # fmt: skip
    return sums.sum(0)


@jit
def _forward(source, bias, target, pixels, unit: tl.constexpr, channels, apart, target_apart, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # fmt: skip  # noqa: E501, PLR0913
    # multiples of the unit, so that as many are read at once
    channels, apart, target_apart = channels * unit, apart * unit, target_apart * unit
    # neighbors in the grid are neighbors in memory: the parts of a pixel are read together
    blocks = tl.cdiv(channels, COLUMNS)
    row = tl.program_id(0) // blocks * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) % blocks * COLUMNS + tl.arange(0, COLUMNS)
    inside = (row < pixels)[:, None] & (column < channels)[None, :]
    at = row[:, None] * apart + column[None, :]
    value = tl.load(source + at, mask=inside, other=0.0).to(tl.float32)
    value += tl.load(bias + column, mask=column < channels, other=0.0).to(tl.float32)[None, :]
    value = tl.where(value <= 0, 0.0, value)  # NaN stays NaN, as in PyTorch
    at = row[:, None] * target_apart + column[None, :]
    tl.store(target + at, value.to(target.dtype.element_ty), mask=inside)


@jit
def _backward(grad, result, gradient, sums, pixels, unit: tl.constexpr, channels, apart, result_apart, gradient_apart, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # fmt: skip  # noqa: E501, PLR0913
    channels, apart = channels * unit, apart * unit
    result_apart, gradient_apart = result_apart * unit, gradient_apart * unit
    blocks = tl.cdiv(channels, COLUMNS)
    program = tl.program_id(0) // blocks
    column = tl.program_id(0) % blocks * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for first in range(program * ROWS, pixels, tl.num_programs(0) // blocks * ROWS):
        row = first + tl.arange(0, ROWS)
        inside = (row < pixels)[:, None] & (column < channels)[None, :]
        at = row[:, None] * result_apart + column[None, :]
        value = tl.load(result + at, mask=inside, other=0.0).to(tl.float32)
        push = tl.load(grad + row[:, None] * apart + column[None, :], mask=inside, other=0.0)
        push = tl.where(value <= 0, 0.0, push.to(tl.float32))
        at = row[:, None] * gradient_apart + column[None, :]
        tl.store(gradient + at, push.to(gradient.dtype.element_ty), mask=inside)
        total += push
    tl.store(sums + program * channels + column, tl.sum(total, 0), mask=column < channels)
