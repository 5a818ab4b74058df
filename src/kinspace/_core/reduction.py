"""From one value a sample to the value of a loss."""

from __future__ import annotations

from torch import Tensor

__all__ = ["REDUCTIONS", "reduce", "zero_with_grad"]

REDUCTIONS = ("mean", "sum", "none")


def reduce(terms: Tensor, reduction: str, count: Tensor | int | None = None) -> Tensor:
    """The mean or the sum of the terms (batch,), or with "none" the terms themselves.

    count: what the mean divides by, at least 1; the number of terms where it is left out.

    >>> import torch
    >>> reduce(torch.tensor([1.0, 2.0]), "mean"), reduce(torch.tensor([1.0, 2.0]), "mean", count=1)
    (tensor(1.5000), tensor(3.))
    """
    if reduction == "none":
        return terms
    if reduction == "sum":
        return terms.sum()
    if count is None:
        return terms.mean()
    return terms.sum() / (count.clamp(min=1) if isinstance(count, Tensor) else max(count, 1))


def zero_with_grad(*tensors: Tensor) -> Tensor:
    """A zero that is connected to the graph of the tensors.

    >>> import torch
    >>> x = torch.ones(2, requires_grad=True)
    >>> zero_with_grad(x).backward(); x.grad
    tensor([0., 0.])
    """
    # An empty slice sums to zero whatever the values are; 0 * x.sum() would turn inf into NaN.
    return sum((tensor.flatten()[:0].sum() for tensor in tensors[1:]), tensors[0][:0].sum())
