"""Local response normalization across channels, one window mean forward and one backward.

    y_i = x_i s_i^-beta,   s_i = k + alpha mean_{j in window(i)} x_j^2

The window has `size` channels around i; beyond the first and last channel x counts as 0. For the
gradient g of y, since j is in the window of i whenever i is in the window of j,

    dx_j = g_j s_j^-beta - 2 alpha beta x_j mean_{i in window(j)} g_i x_i s_i^(-beta - 1)

Krizhevsky et al., ImageNet classification with deep convolutional neural networks, 2012, sec. 3.3,
with Caffe's mean for its sum; the values are those of `torch.nn.functional.local_response_norm`,
which keeps every step of the way for its backward pass.

Always computed in float32 or better: the squares of Caffe's activations overflow float16, and
bfloat16 has no room for the small numbers added to k.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from kinspace import checks
from kinspace.models import kernels
from kinspace.numerics import raise_half

__all__ = ["LocalResponseNorm", "local_response_norm"]


def local_response_norm(
    x: Tensor, size: int = 5, *, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """x (batch, channels, height, width) normalized across channels, in x's dtype and layout.

    >>> x = torch.full((1, 1, 1, 1), 2.0)
    >>> local_response_norm(x, 1, alpha=2.0, beta=0.5).item()  # 2 / (1 + 2 * 4)^0.5
    0.6666666865348816
    """
    if checks.whole("size", size, at_least=1) % 2 == 0:
        raise ValueError(f"size: expected an odd number of channels, got {size}")
    if x.ndim != 4:
        raise ValueError(
            f"x: expected shape (batch, channels, height, width), got {tuple(x.shape)}"
        )
    return _LocalResponseNorm.apply(x, size, alpha, beta, k)  # type: ignore[no-any-return,no-untyped-call]


def _window_mean(x: Tensor, size: int) -> Tensor:
    """Mean over the window of channels around each, in the layout x has."""
    return _by_sums(x, size) if x.device.type == "cpu" else _by_pooling(x, size)


def _by_sums(x: Tensor, size: int) -> Tensor:
    """One addition a channel of the window: on a CPU a quarter of the pooling's time."""
    around, channels = size // 2, x.shape[1]
    total = x.clone(memory_format=torch.preserve_format)
    for step in range(1, min(around, channels - 1) + 1):
        total[:, step:] += x[:, :-step]
        total[:, :-step] += x[:, step:]
    return total.div_(size)


def _by_pooling(x: Tensor, size: int) -> Tensor:
    """One pooling along the channels: one kernel, where each addition would be one."""
    if x.is_contiguous(memory_format=torch.channels_last):
        rows = x.permute(0, 2, 3, 1)  # (batch, height, width, channels), as it lies in memory
        pooled = functional.avg_pool2d(rows, (1, size), 1, (0, size // 2))
        return pooled.permute(0, 3, 1, 2)
    flat = x.flatten(2)[:, None]  # (batch, 1, channels, pixels)
    return functional.avg_pool2d(flat, (size, 1), 1, (size // 2, 0)).view(x.shape)


def _inverse_power(x: Tensor, power: float) -> Tensor:
    """x^-power; two square roots take a third of a general power's time on a CPU."""
    if power == 0.75 and x.device.type == "cpu":
        return x.sqrt().mul_(x).rsqrt_()
    return x.pow(-power)


class _LocalResponseNorm(torch.autograd.Function):
    # In place wherever a value is not needed again: a new map costs as much as what is done to it.
    @staticmethod
    def forward(ctx: Any, x: Tensor, size: int, alpha: float, beta: float, k: float) -> Tensor:
        ctx.options = None
        if kernels.ready(x):
            ctx.save_for_backward(x)
            ctx.options = (size, alpha, beta, k)
            return kernels.lrn_forward(x, size, alpha, beta, k)
        exact = raise_half(x)
        sums = _window_mean(exact.square(), size).mul_(alpha).add_(k)
        ctx.save_for_backward(x, sums)
        ctx.size, ctx.beta, ctx.weight = size, beta, 2 * alpha * beta
        powers = _inverse_power(sums, beta)
        # torch.compile of 2.11 loses the gradient of a result that an operation hands through
        y = powers * exact if torch.compiler.is_compiling() else powers.mul_(exact)
        return y if y.dtype == x.dtype else y.to(x.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        if ctx.options is not None:
            slope = kernels.lrn_backward(ctx.saved_tensors[0], grad, *ctx.options)
            return slope, None, None, None, None
        x, sums = ctx.saved_tensors
        exact = raise_half(x)
        slope = _inverse_power(sums, ctx.beta).mul_(raise_half(grad))
        around = _window_mean((slope * exact).div_(sums), ctx.size)
        slope.addcmul_(around, exact, value=-ctx.weight)
        return slope.to(x.dtype), None, None, None, None


class LocalResponseNorm(nn.Module):
    """Module of `local_response_norm`.

    >>> LocalResponseNorm()(torch.zeros(2, 8, 3, 3)).shape
    torch.Size([2, 8, 3, 3])
    """

    def __init__(
        self, size: int = 5, *, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
    ) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, x: Tensor) -> Tensor:
        """See `local_response_norm`."""
        return local_response_norm(x, self.size, alpha=self.alpha, beta=self.beta, k=self.k)

    def extra_repr(self) -> str:
        """The options."""
        return f"size={self.size}, alpha={self.alpha:g}, beta={self.beta:g}, k={self.k:g}"
