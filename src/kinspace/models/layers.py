"""Layers of Caffe's GoogLeNet. Their kernels are in `kinspace._kernels`."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from kinspace._core import checks
from kinspace._core.tensor_ops import upcast_half
from kinspace._kernels import accelerated

__all__ = [
    "LocalResponseNorm",
    "MaxPool",
    "bias_relu",
    "join_bias_relu",
    "local_response_norm",
    "max_pool",
    "split_bias_relu",
]


@accelerated
def bias_relu(y: Tensor, bias: Tensor) -> Tensor:
    """max(y + bias, 0) of a map y (batch, channels, height, width); bias (channels,).

    >>> bias_relu(torch.tensor([1.0, -3.0]).view(1, 2, 1, 1), torch.tensor([1.0, 2.0])).flatten()
    tensor([2., 0.])
    """
    return (y + bias.view(-1, 1, 1)).relu().to(y.dtype)


@accelerated
def split_bias_relu(y: Tensor, *biases: Tensor) -> tuple[Tensor, ...]:
    """max(y + bias, 0) of y's channels, apart: as many in each map as there are biases for it.

    >>> y = torch.tensor([1.0, -3.0, 5.0]).view(1, 3, 1, 1)
    >>> [z.flatten().tolist() for z in split_bias_relu(y, torch.ones(1), torch.zeros(2))]
    [[2.0], [0.0, 5.0]]
    """
    parts = y.split([len(bias) for bias in biases], 1)
    return tuple(bias_relu(part, bias) for part, bias in zip(parts, biases, strict=True))


@accelerated
def join_bias_relu(first: Tensor, *maps_and_biases: Tensor) -> Tensor:
    """The first map as it is, then max(y + bias, 0) of each further one, their channels in a row.

    maps_and_biases: all further maps, then the bias of each.

    >>> one = torch.ones(1, 1, 1, 1)
    >>> join_bias_relu(one, -3 * one, 5 * one, torch.ones(1), torch.zeros(1)).flatten()
    tensor([1., 0., 5.])
    """
    count = len(maps_and_biases) // 2
    maps, biases = maps_and_biases[:count], maps_and_biases[count:]
    parts = (bias_relu(y, bias) for y, bias in zip(maps, biases, strict=True))
    return torch.cat([first, *parts], 1)


@accelerated
def max_pool(x: Tensor, *, stride: int, padding: int = 0) -> Tensor:
    """The largest value of each 3x3 window; sizes round up, as Caffe has it.

    >>> max_pool(torch.arange(16.0).view(1, 1, 4, 4), stride=2)
    tensor([[[[10., 11.],
              [14., 15.]]]])
    """
    return functional.max_pool2d(x, 3, stride, padding, ceil_mode=True)


@accelerated
def local_response_norm(
    x: Tensor, *, size: int = 5, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """x (batch, channels, height, width) normalized across channels, in x's dtype.

        y_i = x_i s_i^-beta,   s_i = k + alpha mean_{j in window(i)} x_j^2

    The window has `size` channels around i; beyond the first and last channel x counts as 0.
    Always computed in float32 or better: the squares of Caffe's activations overflow float16, and
    bfloat16 has no room for the small numbers added to k.

    Krizhevsky et al., ImageNet classification with deep convolutional neural networks, 2012, sec.
    3.3, with Caffe's mean for its sum.

    >>> x = torch.full((1, 1, 1, 1), 2.0)
    >>> local_response_norm(x, size=1, alpha=2.0, beta=0.5).item()  # 2 / (1 + 2 * 4)^0.5
    0.6666666865348816
    """
    exact = upcast_half(x)
    normalized = functional.local_response_norm(exact, size, alpha, beta, k)
    return normalized.to(x.dtype)


class MaxPool(nn.Module):
    """Module of `max_pool`.

    >>> MaxPool(2)(torch.zeros(1, 1, 4, 4)).shape
    torch.Size([1, 1, 2, 2])
    """

    def __init__(self, stride: int, padding: int = 0) -> None:
        super().__init__()
        self.stride, self.padding = stride, padding

    def forward(self, x: Tensor) -> Tensor:
        """(batch, channels, height, width) -> (batch, channels, rows, columns)."""
        return max_pool(x, stride=self.stride, padding=self.padding)

    def extra_repr(self) -> str:
        """The options."""
        return f"stride={self.stride}, padding={self.padding}"


class LocalResponseNorm(nn.Module):
    """Module of `local_response_norm`.

    >>> LocalResponseNorm()(torch.zeros(2, 8, 3, 3)).shape
    torch.Size([2, 8, 3, 3])
    """

    def __init__(
        self, size: int = 5, *, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
    ) -> None:
        super().__init__()
        if checks.integer("size", size, at_least=1) % 2 == 0:
            raise ValueError(f"size: expected an odd number of channels, got {size}")
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def forward(self, x: Tensor) -> Tensor:
        """See `local_response_norm`."""
        return local_response_norm(x, size=self.size, alpha=self.alpha, beta=self.beta, k=self.k)

    def extra_repr(self) -> str:
        """The options."""
        return f"size={self.size}, alpha={self.alpha:g}, beta={self.beta:g}, k={self.k:g}"
