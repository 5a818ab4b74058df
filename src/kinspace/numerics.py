"""Stable building blocks, and the skewed means.

Every function here is finite, in value and gradient, on finite input: log(1 + sum exp) never
overflows, the unit vector of 0 is 0, and the slope of a square root at 0 counts as 0.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

from kinspace.slopes import across, exp_, exponentials_, without_zero

__all__ = [
    "full_precision",
    "k_skewed_mean",
    "log1p_sum_exp",
    "log_exp_mean",
    "log_sum_exp",
    "power_mean",
    "raise_half",
    "safe_sqrt",
    "unit",
    "zero_of",
]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def full_precision(function: Callable[P, R]) -> Callable[P, R]:
    """Run a loss in float32 or better: autocast off, half precision arguments raised.

    Sums over a batch and exponentials of scaled similarities do not fit float16 or bfloat16.
    """

    @functools.wraps(function)
    def in_full_precision(*args: P.args, **kwargs: P.kwargs) -> R:
        raised: Any = tuple(raise_half(value) for value in args)
        first = args[0] if args else None
        device = first.device.type if isinstance(first, Tensor) else "cpu"
        if not torch.is_autocast_enabled(device):
            return function(*raised, **kwargs)
        with torch.autocast(device_type=device, enabled=False):
            return function(*raised, **kwargs)

    return in_full_precision


def raise_half(value: T) -> T | Tensor:
    """Float16 and bfloat16 tensors as float32, anything else as it is."""
    if isinstance(value, Tensor) and value.dtype in (torch.float16, torch.bfloat16):
        return value.float()
    return value


def zero_of(*tensors: Tensor) -> Tensor:
    """A zero that is connected to the graph of the tensors.

    >>> x = torch.ones(2, requires_grad=True)
    >>> zero_of(x).backward(); x.grad
    tensor([0., 0.])
    """
    # An empty slice sums to zero whatever the values are; 0 * x.sum() would turn inf into NaN.
    return sum((tensor.flatten()[:0].sum() for tensor in tensors[1:]), tensors[0][:0].sum())


def unit(vectors: Tensor) -> Tensor:
    """Scale each row to length 1; a zero row stays zero and gets no gradient.

    >>> unit(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    return _Unit.apply(vectors)  # type: ignore[no-any-return,no-untyped-call]


def _divisors(vectors: Tensor) -> Tensor:
    return without_zero(torch.linalg.vector_norm(vectors, dim=-1, keepdim=True))


class _Unit(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, vectors: Tensor) -> Tensor:
        divisors = _divisors(vectors)
        directions = vectors / divisors
        ctx.save_for_backward(vectors, divisors, directions)
        return directions

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        vectors, divisors, directions = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative, the lengths have one as well
            divisors = _divisors(vectors)
        return across(grad, directions) / divisors


class _SafeSqrt(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, squares: Tensor) -> Tensor:
        roots = squares.sqrt()
        ctx.save_for_backward(roots)
        return roots

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        (roots,) = ctx.saved_tensors
        return grad / (2 * roots.masked_fill(roots == 0, math.inf))


def safe_sqrt(squares: Tensor) -> Tensor:
    """Square root of values >= 0 whose slope at 0 counts as 0.

    >>> x = torch.tensor([0.0, 4.0], requires_grad=True)
    >>> safe_sqrt(x).sum().backward(); x.grad
    tensor([0.0000, 0.2500])
    """
    return _SafeSqrt.apply(squares)  # type: ignore[no-any-return,no-untyped-call]


class _LogSumExp(torch.autograd.Function):
    """log(plus_one + sum exp) along dim, over the entries that `_kept` keeps."""

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, mask: Tensor | None, without: Tensor | None, plus_one: bool
    ) -> Tensor:
        result = exponentials_(_kept(logits, mask, without), plus_one=plus_one)[1][:, 0]
        ctx.save_for_backward(logits, mask, without, result)
        ctx.plus_one = plus_one
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        logits, mask, without, result = ctx.saved_tensors
        if not ctx.plus_one:
            # an empty row has result -inf and nothing kept: its weights are exp(-inf), not NaN
            result = result.masked_fill(result == -math.inf, 0)
        kept = _kept(logits, mask, without)
        if torch.is_grad_enabled():  # for a second derivative
            weights = torch.exp(kept - result[:, None]) * grad[:, None]
        else:  # in place: a new table of this size costs as much as the exponentials
            weights = exp_(kept.sub_(result[:, None])).mul_(grad[:, None])
        return weights, None, None, None


def _kept(logits: Tensor, mask: Tensor | None, without: Tensor | None) -> Tensor:
    """A new table with -inf where the mask is False and at the columns `without` of each row."""
    if mask is not None:
        logits = torch.where(mask, logits, -math.inf)
    if without is not None:
        return logits.scatter(1, without, -math.inf)
    return logits if mask is not None else logits.clone()


def log_sum_exp(
    logits: Tensor, mask: Tensor | None = None, *, without: Tensor | None = None
) -> Tensor:
    """log sum exp of each row; -inf, with gradient 0, over nothing.

    mask: which entries to take. without: columns (rows, k) to leave out in each row, which for few
    columns is much quicker than a mask.

    >>> log_sum_exp(torch.tensor([[0.0, 1.0], [2.0, 3.0]]), torch.eye(2).bool())
    tensor([0., 3.])
    >>> log_sum_exp(torch.tensor([[0.0, 1.0], [2.0, 3.0]]), without=torch.tensor([[1], [1]]))
    tensor([0., 2.])
    """
    return _LogSumExp.apply(logits, mask, without, False)  # type: ignore[no-any-return,no-untyped-call]


def log1p_sum_exp(
    logits: Tensor, mask: Tensor | None = None, *, without: Tensor | None = None
) -> Tensor:
    """log(1 + sum exp) of each row, 0 over nothing; mask and without as in `log_sum_exp`.

    >>> log1p_sum_exp(torch.tensor([[0.0, 0.0, 1000.0]]), torch.tensor([[True, True, False]]))
    tensor([1.0986])
    """
    return _LogSumExp.apply(logits, mask, without, True)  # type: ignore[no-any-return,no-untyped-call]


def k_skewed_mean(values: Tensor, k: int) -> Tensor:
    """Mean of the k largest values along the last dimension, or of the |k| smallest for k < 0.

    Skewed-mean paper, Eq. 5.

    >>> k_skewed_mean(torch.tensor([1.0, 2.0, 4.0]), 2), k_skewed_mean(torch.tensor([1.0, 2.0]), -1)
    (tensor(3.), tensor(1.))
    """
    count = _values(values).shape[-1]
    if isinstance(k, bool) or not isinstance(k, int) or not 1 <= abs(k) <= count:
        raise ValueError(f"k: expected a whole number in +-1..{count}, got {k!r}")
    return values.topk(abs(k), dim=-1, largest=k > 0).values.mean(-1)


def log_exp_mean(values: Tensor, sharpness: float, dim: int = -1) -> Tensor:
    """(1/t) log mean exp(t values), t the sharpness. Skewed-mean paper, Eq. 7.

    t = 0 is the plain mean, t = +-inf the largest and smallest value.

    >>> values = torch.tensor([0.0, 2.0])
    >>> log_exp_mean(values, 0.0), log_exp_mean(values, math.inf)
    (tensor(1.), tensor(2.))
    """
    _values(values)
    if math.isnan(sharpness):
        raise ValueError("sharpness: expected a number, got nan")
    if math.isinf(sharpness):
        return values.amax(dim) if sharpness > 0 else values.amin(dim)
    if sharpness == 0:
        return values.mean(dim)
    # Around the value that weighs most, and by expm1: exact for small t, no overflow for large.
    fixed = values.detach()
    most = fixed.amax(dim, keepdim=True) if sharpness > 0 else fixed.amin(dim, keepdim=True)
    mean = torch.expm1((values - most) * sharpness).mean(dim)
    return most.squeeze(dim) + torch.log1p(mean) / sharpness


def power_mean(values: Tensor, power: float, dim: int = -1) -> Tensor:
    """(mean values^t)^(1/t) of values >= 0, t the power; t = 0 is the geometric mean.

    Skewed-mean paper, Eq. 7. With t <= 0 a zero among the values gives 0.

    >>> power_mean(torch.tensor([1.0, 4.0]), 0.0), power_mean(torch.tensor([3.0, 4.0]), 2.0)
    (tensor(2.), tensor(3.5355))
    """
    _values(values)
    if math.isnan(power):
        raise ValueError("power: expected a number, got nan")
    if not torch.compiler.is_compiling() and bool((values < 0).any()):
        raise ValueError(f"values: expected 0 or more, got {values.min().item():g}")
    if math.isinf(power):
        return values.amax(dim) if power > 0 else values.amin(dim)
    # In log space, zeros apart: log 0 is replaced before the log so that its slope stays finite.
    empty = values == 0
    logs = torch.log(values.masked_fill(empty, 1))
    if power <= 0:
        return torch.exp(log_exp_mean(logs, power, dim)).masked_fill(empty.any(dim), 0)
    nothing = empty.all(dim, keepdim=True)
    most = logs.detach().masked_fill(empty & ~nothing, -math.inf).amax(dim, keepdim=True)
    ratios = torch.expm1((logs - most) * power).masked_fill(empty & ~nothing, -1)
    mean = torch.exp(most.squeeze(dim) + torch.log1p(ratios.mean(dim)) / power)
    return mean.masked_fill(nothing.squeeze(dim), 0)


def _values(values: Tensor) -> Tensor:
    if not isinstance(values, Tensor) or not values.is_floating_point() or values.numel() == 0:
        came = f"{values.dtype} {tuple(values.shape)}" if isinstance(values, Tensor) else values
        raise ValueError(f"values: expected a non-empty floating point tensor, got {came}")
    return values
