"""A convolution's bias and the ReLU after it, in one pass over the map each way.

    z = max(y + b, 0),   dy = g where z > 0 else 0,   db = sum of dy over all pixels

PyTorch takes two passes forward and two backward, of which the sum for the bias is a slow one: 2.1
of 17.1 ms of a GoogLeNet step on an H200 (batch 144 of 227 px, bfloat16). Here the pass that makes
dy adds it up: each program keeps float32 sums of the pixels it has seen, and PyTorch adds the
programs' sums. The order is always the same, and so is the result.

z is written over y (`bias_relu`), or to where it is wanted: the parts of a map that one convolution
made for several branches (`split_bias_relu`), and the parts of a concatenation (`join_bias_relu`).

A program's tile is some pixels by up to 64 channels, which lie side by side in channels-last. The
pixels of a part lie apart by the channels of the whole.
"""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from kinspace.gpu_kernels import jit, power_of_2, tl
from kinspace.models import kernels

__all__ = ["bias_relu", "join_bias_relu", "split_bias_relu"]

TILE = 4096  # values of a tile
COLUMNS = 64  # at most this many channels of it
PROGRAMS = 528  # of the backward pass: four for each multiprocessor of an H200
WARPS = 8
UNIT = 8  # channels that are read at once, if all numbers of channels are multiples of it


def bias_relu(y: Tensor, bias: Tensor) -> Tensor:
    """max(y + bias, 0), written over y (batch, channels, height, width); bias (channels,).

    >>> bias_relu(torch.tensor([1.0, -3.0]).view(1, 2, 1, 1), torch.tensor([1.0, 2.0])).flatten()
    tensor([2., 0.])
    """
    if kernels.ready(y):
        return _BiasReLU.apply(y, bias)  # type: ignore[no-any-return,no-untyped-call]
    return y.add_(bias.view(-1, 1, 1)).relu_()


def split_bias_relu(y: Tensor, biases: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """max(y + bias, 0) of y's channels, apart: as many in each map as there are biases for it.

    >>> y = torch.tensor([1.0, -3.0, 5.0]).view(1, 3, 1, 1)
    >>> [z.flatten().tolist() for z in split_bias_relu(y, [torch.ones(1), torch.zeros(2)])]
    [[2.0], [0.0, 5.0]]
    """
    if kernels.ready(y):
        return _Split.apply(y, *biases)  # type: ignore[no-any-return,no-untyped-call]
    parts = y.split([len(bias) for bias in biases], 1)
    return tuple((p + b.view(-1, 1, 1)).relu_() for p, b in zip(parts, biases, strict=True))


def join_bias_relu(first: Tensor, maps: Sequence[Tensor], biases: Sequence[Tensor]) -> Tensor:
    """The first map as it is, then max(y + bias, 0) of each further one, their channels in a row.

    >>> one = torch.ones(1, 1, 1, 1)
    >>> join_bias_relu(one, [-3 * one, 5 * one], [torch.ones(1), torch.zeros(1)]).flatten()
    tensor([1., 0., 5.])
    """
    if all(kernels.ready(map_) for map_ in (first, *maps)):
        return _Join.apply(first, *maps, *biases)  # type: ignore[no-any-return,no-untyped-call]
    parts = ((y + b.view(-1, 1, 1)).relu_() for y, b in zip(maps, biases, strict=True))
    return torch.cat([first, *parts], 1)


class _BiasReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, bias: Tensor) -> Tensor:
        _write(y, bias, y)
        ctx.mark_dirty(y)
        ctx.save_for_backward(y)
        ctx.dtype = bias.dtype
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        (result,) = ctx.saved_tensors
        slope = torch.empty_like(result)
        sums = _slopes(grad, result, slope)
        by_map, by_bias = ctx.needs_input_grad
        return slope if by_map else None, sums.to(ctx.dtype) if by_bias else None


class _Split(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, *biases: Tensor) -> tuple[Tensor, ...]:
        parts = y.split([len(bias) for bias in biases], 1)
        results = tuple(torch.empty_like(p, memory_format=torch.channels_last) for p in parts)
        for part, bias, result in zip(parts, biases, results, strict=True):
            _write(part, bias, result)
        ctx.save_for_backward(*results)
        ctx.dtypes = [bias.dtype for bias in biases]
        return results

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> Any:
        results = ctx.saved_tensors
        sizes = [result.shape[1] for result in results]
        slope = _empty(results[0], sum(sizes))
        by_map, *by_bias = ctx.needs_input_grad
        sums = [
            _slopes(grad, result, part).to(dtype) if wanted or by_map else None
            for grad, result, part, dtype, wanted in zip(
                grads, results, slope.split(sizes, 1), ctx.dtypes, by_bias, strict=True
            )
        ]
        return slope if by_map else None, *sums


class _Join(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, first: Tensor, *rest: Tensor) -> Tensor:
        maps, biases = rest[: len(rest) // 2], rest[len(rest) // 2 :]
        ctx.sizes = [map_.shape[1] for map_ in (first, *maps)]
        ctx.dtypes = [bias.dtype for bias in biases]
        result = _empty(first, sum(ctx.sizes))
        begin, *parts = result.split(ctx.sizes, 1)
        begin.copy_(first)
        for map_, bias, part in zip(maps, biases, parts, strict=True):
            _write(map_, bias, part)
        ctx.save_for_backward(result)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        (result,) = ctx.saved_tensors
        by_first, *by_rest = ctx.needs_input_grad
        begin, *grads = grad.split(ctx.sizes, 1)
        parts = result.split(ctx.sizes, 1)[1:]
        slopes = [_empty(part, part.shape[1]) for part in parts]
        sums = []
        for place, dtype in enumerate(ctx.dtypes):
            needed = by_rest[place] or by_rest[len(parts) + place]
            total = _slopes(grads[place], parts[place], slopes[place]) if needed else None
            sums.append(None if total is None else total.to(dtype))
        wanted = zip((*slopes, *sums), by_rest, strict=True)
        return begin if by_first else None, *(each if want else None for each, want in wanted)


def _empty(like: Tensor, channels: int) -> Tensor:
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
    if pixels.stride(1) != 1 or len(pixels) * pixels.stride(0) >= kernels.LIMIT:
        return pixels.contiguous()
    return pixels


def _in_units(*numbers: int) -> tuple[int, ...]:
    """The unit, and the numbers of channels counted in it."""
    unit = 1 if any(number % UNIT for number in numbers) else UNIT
    return unit, *(number // unit for number in numbers)


def _write(source: Tensor, bias: Tensor, target: Tensor) -> None:
    """max(source + bias, 0) to the target; both in channels-last, or a part of such a map."""
    pixels, places = _by_pixel(source), target.permute(0, 2, 3, 1).flatten(0, 2)
    rows, columns, blocks = _tile(len(bias))
    _forward[(-(-len(pixels) // rows) * blocks,)](
        pixels, bias.contiguous(), places, len(pixels),
        *_in_units(len(bias), pixels.stride(0), places.stride(0)), rows, columns, num_warps=WARPS,
    )  # fmt: skip


def _slopes(grad: Tensor, result: Tensor, slope: Tensor) -> Tensor:
    """Write the slope by the map; returns its sums over the pixels, (channels,) in float32."""
    pixels = _by_pixel(grad)
    results, slopes = (map_.permute(0, 2, 3, 1).flatten(0, 2) for map_ in (result, slope))
    rows, columns, blocks = _tile(pixels.shape[1])
    programs = min(-(-len(pixels) // rows), max(PROGRAMS // blocks, 1))
    sums = pixels.new_empty((programs, pixels.shape[1]), dtype=torch.float32)
    strides = [tensor.stride(0) for tensor in (pixels, results, slopes)]
    _backward[(programs * blocks,)](
        pixels, results, slopes, sums, len(pixels), *_in_units(pixels.shape[1], *strides), rows,
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
    value = tl.where(value <= 0, 0.0, value)  # what is no number stays none, as in PyTorch
    at = row[:, None] * target_apart + column[None, :]
    tl.store(target + at, value.to(target.dtype.element_ty), mask=inside)


@jit
def _backward(grad, result, slope, sums, pixels, unit: tl.constexpr, channels, apart, result_apart, slope_apart, ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # fmt: skip  # noqa: E501, PLR0913
    channels, apart = channels * unit, apart * unit
    result_apart, slope_apart = result_apart * unit, slope_apart * unit
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
        at = row[:, None] * slope_apart + column[None, :]
        tl.store(slope + at, push.to(slope.dtype.element_ty), mask=inside)
        total += push
    tl.store(sums + program * channels + column, tl.sum(total, 0), mask=column < channels)
