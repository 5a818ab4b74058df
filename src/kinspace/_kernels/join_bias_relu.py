"""Bias and ReLU of several maps, written to one beside another (`kinspace._kernels.bias_relu`)."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from kinspace._kernels._triton import takes_map
from kinspace._kernels.bias_relu import empty_map, write, write_gradient

__all__ = ["forward", "supports", "vjp", "vjp_formula"]

Tensors = tuple[Tensor, ...]


def supports(first: Tensor, *maps_and_biases: Tensor) -> bool:
    """Whether the kernel takes these maps."""
    maps = maps_and_biases[: len(maps_and_biases) // 2]
    return all(takes_map(each) for each in (first, *maps))


def forward(first: Tensor, *maps_and_biases: Tensor) -> tuple[Tensor, Tensors]:
    """The first map, then max(y + bias, 0) of each further one."""
    count = len(maps_and_biases) // 2
    maps, biases = maps_and_biases[:count], maps_and_biases[count:]
    sizes = [each.shape[1] for each in (first, *maps)]
    result = empty_map(first, sum(sizes))
    begin, *parts = result.split(sizes, 1)
    begin.copy_(first)
    for y, bias, part in zip(maps, biases, parts, strict=True):
        write(y, bias, part)
    return result, (result, *biases)


def vjp(saved: Sequence[Tensor], grads: Sequence[Tensor]) -> Tensors:
    """The gradients by the first map, the further ones and the biases."""
    begin, pushed, results = _parts(saved, grads)
    gradients = [empty_map(result, result.shape[1]) for result in results]
    triples = zip(pushed, results, gradients, strict=True)
    sums = [write_gradient(grad, result, into) for grad, result, into in triples]
    return begin, *gradients, *sums


def vjp_formula(saved: Sequence[Tensor], grads: Sequence[Tensor]) -> Tensors:
    """The same in plain PyTorch."""
    begin, pushed, results = _parts(saved, grads)
    gradients = [
        grad.masked_fill(result <= 0, 0) for grad, result in zip(pushed, results, strict=True)
    ]
    return begin, *gradients, *(gradient.float().sum((0, 2, 3)) for gradient in gradients)


def _parts(saved: Sequence[Tensor], grads: Sequence[Tensor]) -> tuple[Tensor, Tensors, Tensors]:
    """The gradient of the first map, and of the further ones gradient and result."""
    result, *biases = saved
    sizes = [len(bias) for bias in biases]
    sizes = [result.shape[1] - sum(sizes), *sizes]
    begin, *pushed = grads[0].split(sizes, 1)
    return begin, tuple(pushed), result.split(sizes, 1)[1:]
