"""Bias and ReLU of the channels of one map, written to several (`kinspace._kernels.bias_relu`)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kinspace._kernels._triton import takes_map
from kinspace._kernels.bias_relu import empty_map, write, write_gradient

__all__ = ["forward", "supports", "vjp", "vjp_formula"]

Tensors = tuple[Tensor, ...]


def supports(y: Tensor, *biases: Tensor) -> bool:
    """Whether the kernel takes this map."""
    return takes_map(y)


def forward(y: Tensor, *biases: Tensor) -> tuple[Tensors, Tensors]:
    """max(y + bias, 0) of each part."""
    parts = y.split([len(bias) for bias in biases], 1)
    results = tuple(empty_map(part, part.shape[1]) for part in parts)
    for part, bias, result in zip(parts, biases, results, strict=True):
        write(part, bias, result)
    return results, results


def vjp(saved: Sequence[Tensor], grads: Sequence[Tensor]) -> Tensors:
    """The gradients by the map and by the biases."""
    sizes = [result.shape[1] for result in saved]
    gradient = empty_map(saved[0], sum(sizes))
    parts = gradient.split(sizes, 1)
    triples = zip(grads, saved, parts, strict=True)
    return gradient, *(write_gradient(grad, result, part) for grad, result, part in triples)


def vjp_formula(saved: Sequence[Tensor], grads: Sequence[Tensor]) -> Tensors:
    """The same in plain PyTorch."""
    parts = [grad.masked_fill(result <= 0, 0) for grad, result in zip(grads, saved, strict=True)]
    return torch.cat(parts, 1), *(part.float().sum((0, 2, 3)) for part in parts)
