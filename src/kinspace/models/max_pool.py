"""Max pooling over windows of 3x3 whose sizes round up, as Caffe has it.

On a GPU with maps in channels-last by kernels of our own (`kernels`), else by PyTorch's.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from kinspace.models import kernels

__all__ = ["MaxPool"]


class MaxPool(nn.Module):
    """The largest value of each 3x3 window (module docstring).

    >>> MaxPool(2)(torch.arange(16.0).view(1, 1, 4, 4))
    tensor([[[[10., 11.],
              [14., 15.]]]])
    """

    def __init__(self, stride: int, padding: int = 0) -> None:
        super().__init__()
        self.stride, self.padding = stride, padding

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, height, width) -> (batch, channels, rows, columns)."""
        if kernels.ready(x):
            return _MaxPool.apply(x, self.stride, self.padding)  # type: ignore[no-any-return,no-untyped-call]
        return functional.max_pool2d(x, 3, self.stride, self.padding, ceil_mode=True)

    def extra_repr(self) -> str:
        """The options."""
        return f"stride={self.stride}, padding={self.padding}"


def _rounded_up(length: int, stride: int, padding: int) -> int:
    """Windows along one side; the last one starts inside the map."""
    windows = -(-max(length + 2 * padding - 3, 0) // stride) + 1
    return windows - 1 if (windows - 1) * stride >= length + padding else windows


class _MaxPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, stride: int, padding: int) -> Tensor:
        size = tuple(_rounded_up(length, stride, padding) for length in x.shape[2:])
        result, place = kernels.max_pool_forward(x, (size[0], size[1]), stride, padding)
        ctx.save_for_backward(place)
        ctx.shape, ctx.stride, ctx.padding = x.shape, stride, padding
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        (place,) = ctx.saved_tensors
        slope = kernels.max_pool_backward(grad, place, ctx.shape, ctx.stride, ctx.padding)
        return slope, None, None
