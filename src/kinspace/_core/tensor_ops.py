"""Operations on tensors that losses and regularizers share.

Precision (losses run in float32 or better, whatever the model runs in), reduction of one value a
sample to one value, logarithms of sums of exponentials that are finite on any finite input, the
k-th largest value, n log n as whole numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor
from torch.nn import functional

__all__ = [
    "REDUCTIONS",
    "fixed_point_n_log_n",
    "full_precision",
    "is_traced",
    "kth_largest",
    "log1p_sum_exp",
    "log_mean_exp",
    "log_sum_exp",
    "or_one",
    "reduce",
    "reduce_hinges",
    "upcast_half",
    "zero_with_grad",
]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
REDUCTIONS = ("mean", "sum", "none")
BITS = 40  # binary places of n log n
LINEAR = 40.0  # log(1 + exp(z)) is z to all digits of float64 from here on


def is_traced(tensor: Tensor) -> bool:
    """Inside torch.compile and torch.func.vmap no shape and no branch may depend on values.

    >>> is_traced(torch.ones(2))
    False
    """
    return torch.compiler.is_compiling() or _is_batched(tensor)


def _is_batched(tensor: Tensor) -> bool:
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):
        if functorch.is_batchedtensor(tensor):
            return True
        tensor = functorch.get_unwrapped(tensor)
    return False


def full_precision(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function with autocast off and its float16 and bfloat16 arguments as float32.

    Sums over a batch and exponentials of scaled similarities do not fit the half precisions.
    """

    @functools.wraps(function)
    def in_full_precision(*args: P.args, **kwargs: P.kwargs) -> R:
        upcast: Any = tuple(upcast_half(value) for value in args)
        named: Any = {name: upcast_half(value) for name, value in kwargs.items()}
        first = args[0] if args else None
        device = first.device.type if isinstance(first, Tensor) else "cpu"
        if not torch.is_autocast_enabled(device):
            return function(*upcast, **named)
        with torch.autocast(device_type=device, enabled=False):
            return function(*upcast, **named)

    return in_full_precision


def upcast_half(value: T) -> T | Tensor:
    """Float16 and bfloat16 tensors as float32, anything else as it is.

    >>> upcast_half(torch.ones(1, dtype=torch.bfloat16)).dtype
    torch.float32
    """
    if isinstance(value, Tensor) and value.dtype in (torch.float16, torch.bfloat16):
        return value.float()
    return value


def reduce(
    terms: Tensor,
    reduction: str,
    count: Tensor | int | None = None,
    *,
    weights: Tensor | None = None,
) -> Tensor:
    """The mean or the sum of the terms (batch,), or with "none" the terms themselves.

    count: what the mean divides by, at least 1; the number of terms where it is left out.
    weights: what each term is multiplied by, (batch,); the mean then divides by their sum.

    >>> import torch
    >>> reduce(torch.tensor([1.0, 2.0]), "mean"), reduce(torch.tensor([1.0, 2.0]), "mean", count=1)
    (tensor(1.5000), tensor(3.))
    >>> reduce(torch.tensor([1.0, 2.0]), "mean", weights=torch.tensor([3.0, 1.0]))
    tensor(1.2500)
    """
    if weights is not None:
        terms = weights * terms
        if reduction == "mean":
            return terms.sum() / or_one(weights.sum())
    if reduction == "none":
        return terms
    if reduction == "sum":
        return terms.sum()
    if count is None:
        return terms.mean()
    return terms.sum() / (count.clamp(min=1) if isinstance(count, Tensor) else max(count, 1))


def reduce_hinges(
    values: Tensor, reduction: str, *, used: Tensor | None = None, weights: Tensor | None = None
) -> Tensor:
    """The sum of the hinges max(0, value), their "mean", or "mean_active" over those above 0.

    used: a mask of the values that count; weights: what each hinge is multiplied by, and the means
    divide by the sum of.

    >>> import torch
    >>> values = torch.tensor([3.0, -1.0, 1.0])
    >>> reduce_hinges(values, "mean"), reduce_hinges(values, "mean_active")
    (tensor(1.3333), tensor(2.))
    """
    used = torch.ones_like(values, dtype=torch.bool) if used is None else used
    hinges = values.relu().masked_fill(~used, 0.0)
    if reduction == "mean_active":
        used = used & (hinges > 0)
    if weights is not None:
        hinges, used = weights * hinges, weights * used
    return hinges.sum() if reduction == "sum" else hinges.sum() / or_one(used.sum())


def or_one(totals: Tensor) -> Tensor:
    """Sums of weights to divide by: 1 where they are 0.

    >>> import torch
    >>> or_one(torch.tensor([0.75, 0.0, 3.0]))
    tensor([0.7500, 1.0000, 3.0000])
    """
    return totals.masked_fill(totals == 0, 1)


def zero_with_grad(*tensors: Tensor) -> Tensor:
    """A zero that is connected to the graph of the tensors.

    >>> import torch
    >>> x = torch.ones(2, requires_grad=True)
    >>> zero_with_grad(x).backward(); x.grad
    tensor([0., 0.])
    """
    # An empty slice sums to zero whatever the values are; 0 * x.sum() would turn inf into NaN.
    return sum((tensor.flatten()[:0].sum() for tensor in tensors[1:]), tensors[0][:0].sum())


def log_sum_exp(logits: Tensor, mask: Tensor | None = None) -> Tensor:
    """log(sum exp) over the entries of the mask; over none the lowest number, with no gradient.

    Not -inf, whose derivatives are not finite. Added to anything of usual size it stays the lowest.

    >>> log_sum_exp(torch.tensor([[0.0, 1.0], [2.0, 3.0]]), torch.eye(2).bool())
    tensor([0., 3.])
    """
    if mask is not None:
        logits = logits.masked_fill(~mask, torch.finfo(logits.dtype).min)
    return logits.logsumexp(-1)


def log_mean_exp(logits: Tensor, mask: Tensor) -> Tensor:
    """log(mean exp) over the entries of the mask; 0, with no gradient, over none.

    >>> log_mean_exp(torch.tensor([[0.0, 0.0, 9.0]]), torch.tensor([[True, True, False]]))
    tensor([0.])
    """
    counts = mask.sum(-1).clamp(min=1).to(logits.dtype)
    return (log_sum_exp(logits, mask) - counts.log()).masked_fill(~mask.any(-1), 0.0)


def log1p_sum_exp(logits: Tensor, mask: Tensor | None = None) -> Tensor:
    """log(1 + sum exp) over the entries of the mask; 0, with no gradient, over none.

    >>> log1p_sum_exp(torch.tensor([[0.0, 0.0, 1000.0]]), torch.tensor([[True, True, False]]))
    tensor([1.0986])
    """
    # a softplus of the sum keeps the digits of a small one
    return functional.softplus(log_sum_exp(logits, mask), threshold=LINEAR)


@torch.no_grad()
def kth_largest(values: Tensor, k: Tensor) -> Tensor:
    """The k-th largest of the values (n,), the smallest where k is above n; k counts from 1.

    >>> kth_largest(torch.tensor([3.0, 1.0, 4.0, 2.0]), torch.tensor(2))
    tensor(3.)
    """
    if values.device.type == "cpu" and not (is_traced(values) or is_traced(k)):
        return values.kthvalue(max(len(values) + 1 - int(k), 1)).values  # an eighth of the time
    ordered = values.sort(descending=True).values
    return ordered.gather(0, (k - 1).clamp(max=len(values) - 1)[None])[0]


def fixed_point_n_log_n(largest: int) -> Tensor:
    """n log n for n = 0, ..., largest in 2^-40, whole numbers: exact sums for entropies of counts.

    >>> fixed_point_n_log_n(2) / 2**40
    tensor([0.0000, 0.0000, 1.3863])
    """
    numbers = torch.arange(largest + 1, dtype=torch.float64)
    return torch.xlogy(numbers, numbers).mul(2.0**BITS).round().long()
