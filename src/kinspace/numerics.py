"""The skewed means, and the stable building blocks that the losses are made of.

Every function here is finite, in value and gradient, on finite input.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kinspace._core.tensor_ops import is_traced, log1p_sum_exp, log_sum_exp
from kinspace._core.vectors import euclidean_distances, squared_distances, unit

__all__ = [
    "euclidean_distances",
    "k_skewed_mean",
    "log1p_sum_exp",
    "log_exp_mean",
    "log_sum_exp",
    "power_mean",
    "squared_distances",
    "unit",
]


def k_skewed_mean(values: Tensor, k: int) -> Tensor:
    """Mean of the k largest values along the last dimension, or of the |k| smallest for k < 0.

    Skewed-mean paper, Eq. 5.

    >>> k_skewed_mean(torch.tensor([1.0, 2.0, 4.0]), 2), k_skewed_mean(torch.tensor([1.0, 2.0]), -1)
    (tensor(3.), tensor(1.))
    """
    count = _checked(values).shape[-1]
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= abs(k) <= count:
        raise ValueError(f"k: expected a whole number in +-1..{count}, got {k!r}")
    return values.topk(abs(k), dim=-1, largest=k > 0).values.mean(-1)


def log_exp_mean(values: Tensor, sharpness: float | Tensor, dim: int = -1) -> Tensor:
    """(1/t) log mean exp(t values), t the sharpness. Skewed-mean paper, Eq. 7.

    t = 0 is the plain mean, t = +-inf the largest and smallest value.

    >>> values = torch.tensor([0.0, 2.0])
    >>> log_exp_mean(values, 0.0), log_exp_mean(values, math.inf)
    (tensor(1.), tensor(2.))
    """
    _checked(values)
    plain = _plain(sharpness)
    if math.isnan(plain):
        raise ValueError("sharpness: expected a number, got nan")
    if math.isinf(plain):
        return values.amax(dim) if plain > 0 else values.amin(dim)
    if plain == 0:
        return values.mean(dim)
    # Around the value that weighs most, and by expm1: exact for small t, no overflow for large.
    fixed = values.detach()
    most = fixed.amax(dim, keepdim=True) if plain > 0 else fixed.amin(dim, keepdim=True)
    mean = torch.expm1((values - most) * sharpness).mean(dim)
    return most.squeeze(dim) + torch.log1p(mean) / sharpness


def power_mean(values: Tensor, power: float | Tensor, dim: int = -1) -> Tensor:
    """(mean values^t)^(1/t) of values >= 0, t the power; t = 0 is the geometric mean.

    Skewed-mean paper, Eq. 7. With t <= 0 a zero among the values gives 0.

    >>> power_mean(torch.tensor([1.0, 4.0]), 0.0), power_mean(torch.tensor([3.0, 4.0]), 2.0)
    (tensor(2.), tensor(3.5355))
    """
    _checked(values)
    plain = _plain(power)
    if math.isnan(plain):
        raise ValueError("power: expected a number, got nan")
    if values.is_cpu and not is_traced(values) and bool((values < 0).any()):
        raise ValueError(f"values: expected 0 or more, got {values.min().item():g}")
    if math.isinf(plain):
        return values.amax(dim) if plain > 0 else values.amin(dim)
    # In log space, zeros apart: log 0 is replaced before the log so that its slope stays finite.
    empty = values == 0
    logs = torch.log(values.masked_fill(empty, 1))
    if plain <= 0:
        return torch.exp(log_exp_mean(logs, power, dim)).masked_fill(empty.any(dim), 0)
    nothing = empty.all(dim, keepdim=True)
    most = logs.detach().masked_fill(empty & ~nothing, -math.inf).amax(dim, keepdim=True)
    ratios = torch.expm1((logs - most) * power).masked_fill(empty & ~nothing, -1)
    mean = torch.exp(most.squeeze(dim) + torch.log1p(ratios.mean(dim)) / power)
    return mean.masked_fill(nothing.squeeze(dim), 0)


def _plain(number: float | Tensor) -> float:
    """The value of a number that may be learned."""
    return float(number.detach()) if isinstance(number, Tensor) else number


def _checked(values: Tensor) -> Tensor:
    if not isinstance(values, Tensor) or not values.is_floating_point() or values.numel() == 0:
        came = f"{values.dtype} {tuple(values.shape)}" if isinstance(values, Tensor) else values
        raise ValueError(f"values: expected a non-empty floating point tensor, got {came}")
    return values
