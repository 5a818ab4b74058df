"""Local response normalization in one pass each way.

    dx_j = g_j s_j^-beta - 2 alpha beta x_j mean_{i in window(j)} g_i x_i s_i^(-beta - 1)

for the gradient g of y, since j is in the window of i whenever i is in the window of j. PyTorch's
takes five to six passes over the map and keeps every step for its backward pass. On a GPU with maps
in channels-last each direction is a kernel of Triton; on a CPU PyTorch's operations in place.
"""

# mypy: allow-untyped-decorators, allow-untyped-defs, allow-incomplete-defs
from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kinspace._core.tensor_ops import upcast_half
from kinspace._kernels._triton import jit, takes_map, tl

__all__ = ["forward", "supports", "vjp"]

BLOCK = 1024


def supports(
    x: Tensor, *, size: int = 5, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> bool:
    """Whether the kernel takes this map."""
    return size % 2 == 1 and (takes_map(x) or (x.is_cpu and x.ndim == 4))


def forward(
    x: Tensor, *, size: int = 5, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """x s^-beta; kept on a CPU beside x: s."""
    if not takes_map(x):
        sums = _window_mean(upcast_half(x).square(), size).mul_(alpha).add_(k)
        return _inverse_power(sums, beta).mul_(upcast_half(x)).to(x.dtype), (x, sums)
    result = torch.empty_like(x)
    options = (x.shape[1], alpha / size, -beta, k, size // 2, BLOCK)
    _normalize[_grid(x)](x, result, x.numel(), *options)
    return result, (x,)


def vjp(
    saved: Sequence[Tensor],
    grads: Sequence[Tensor],
    *,
    size: int = 5,
    alpha: float = 1e-4,
    beta: float = 0.75,
    k: float = 1.0,
) -> tuple[Tensor]:
    """The gradient by x."""
    x = saved[0]
    if len(saved) > 1:
        exact, sums = upcast_half(x), saved[1]
        gradient = _inverse_power(sums, beta).mul_(upcast_half(grads[0]))
        around = _window_mean((gradient * exact).div_(sums), size)
        return (gradient.addcmul_(around, exact, value=-2 * alpha * beta),)
    grad = grads[0].contiguous(memory_format=torch.channels_last)
    result, terms = torch.empty_like(x), torch.empty_like(x, dtype=torch.float32)
    options = (x.shape[1], alpha / size, -beta, k, size // 2, BLOCK)
    _window_terms[_grid(x)](x, grad, terms, x.numel(), *options)
    _normalize_back[_grid(x)](x, grad, terms, result, x.numel(), *options)
    return (result,)


def _window_mean(x: Tensor, size: int) -> Tensor:
    """Mean over the window of channels around each, by one addition a channel of the window."""
    total = x.clone(memory_format=torch.preserve_format)
    for step in range(1, min(size // 2, x.shape[1] - 1) + 1):
        total[:, step:] += x[:, :-step]
        total[:, :-step] += x[:, step:]
    return total.div_(size)


def _inverse_power(x: Tensor, power: float) -> Tensor:
    """x^-power; two square roots take a third of a general power's time."""
    if power == 0.75:
        return x.sqrt().mul_(x).rsqrt_()
    return x.pow(-power)


def _grid(values: Tensor) -> tuple[int]:
    return ((values.numel() + BLOCK - 1) // BLOCK,)


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
def _window_terms(x, grad, terms, values, channels, weight, power, k, AROUND: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip  # noqa: E501, PLR0913
    """g_i x_i s_i^(-beta - 1)."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < values
    scale = _sum_of_squares(x, at, inside, channels, weight, k, AROUND)
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    value *= tl.load(grad + at, mask=inside, other=0.0).to(tl.float32)
    value *= tl.exp2((power - 1) * tl.log2(scale))
    tl.store(terms + at, value, mask=inside)


@jit
def _normalize_back(x, grad, terms, result, values, channels, weight, power, k, AROUND: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip  # noqa: E501, PLR0913
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < values
    scale = _sum_of_squares(x, at, inside, channels, weight, k, AROUND)
    channel = at % channels
    around = tl.zeros((BLOCK,), tl.float32)
    for step in tl.static_range(2 * AROUND + 1):
        other = channel + step - AROUND
        valid = inside & (other >= 0) & (other < channels)
        around += tl.load(terms + at + step - AROUND, mask=valid, other=0.0)
    value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
    gradient = tl.load(grad + at, mask=inside, other=0.0).to(tl.float32)
    gradient *= tl.exp2(power * tl.log2(scale))
    gradient += 2 * weight * power * value * around
    tl.store(result + at, gradient.to(result.dtype.element_ty), mask=inside)
