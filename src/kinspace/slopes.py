"""Gradients made by hand beside the value, without a graph, and the parts to make them of.

A loss on a batch of usual size costs what its number of operations costs, most of all on a GPU.
Made in place, and with what the value left behind, a gradient takes half of those that autograd
takes. What ends in `_with_pull`, here and in `distances`, returns a result and its pull: a function
that takes a gradient by the result back to one by the argument.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from kinspace import cuda_kernels

__all__ = [
    "LOG2_E",
    "across",
    "across_",
    "exp_",
    "exponentials_",
    "polar",
    "twice_sums_",
    "two_units_with_pull",
    "unit_with_pull",
    "with_slopes",
    "without_zero",
]

LOG2_E = math.log2(math.e)
# of the kernel
SOURCE = Path(__file__).with_suffix(".cu")
THREADS = 256


def with_slopes(value: Tensor, *slopes: tuple[Tensor, Callable[[], Tensor]]) -> Tensor:
    """Give a value that was made without a graph its gradients: (tensor, how to make its slope).

    A slope is made only if its tensor requires one. It has no derivative of its own: asking for
    one by create_graph=True is an error.

    >>> x = torch.tensor([1.0, 3.0], requires_grad=True)
    >>> value = with_slopes(x.detach().square().sum(), (x, lambda: 2 * x.detach()))
    >>> value.backward(); value.item(), x.grad
    (10.0, tensor([2., 6.]))
    """
    if not torch.is_grad_enabled():
        return value
    with torch.no_grad():
        made = [(tensor, slope()) for tensor, slope in slopes if tensor.requires_grad]
    if not made:
        return value
    tensors, ready = zip(*made, strict=True)
    return _Sloped.apply(value, *tensors, *ready)  # type: ignore[no-any-return,no-untyped-call]


class _Sloped(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, value: Tensor, *tensors_and_slopes: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors_and_slopes[len(tensors_and_slopes) // 2 :])
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            raise RuntimeError(
                "create_graph=True: this loss makes its gradient beside its value, "
                "and that gradient has no derivative of its own"
            )
        slopes = ctx.saved_tensors
        return None, *(grad * slope for slope in slopes), *(None for _ in slopes)


def without_zero(lengths: Tensor) -> Tensor:
    """Lengths to divide by: infinity for 0, so that the quotient and its gradient are 0."""
    # for tiny ones too: dividing by them overflows
    return functional.threshold(lengths, torch.finfo(lengths.dtype).tiny, math.inf)


def across(grad: Tensor, directions: Tensor) -> Tensor:
    """The part of each row that is at a right angle to its direction."""
    along = (grad * directions).sum(-1, keepdim=True)
    return torch.addcmul(grad, along, directions, value=-1)


def across_(grad: Tensor, directions: Tensor) -> Tensor:
    """`across` in place."""
    return grad.addcmul_((grad * directions).sum(-1, keepdim=True), directions, value=-1)


@torch.no_grad()
def polar(vectors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """`unit` without a graph, between the lengths of the rows and what these were divided by.

    That is the length, but infinity for 0.

    >>> polar(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    (tensor([[5.],
            [0.]]), tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]]), tensor([[5.],
            [inf]]))
    """
    lengths: Tensor = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    divisors = without_zero(lengths)
    return lengths, vectors / divisors, divisors


@torch.no_grad()
def unit_with_pull(vectors: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """`unit` without a graph, and what takes a gradient back from its result to the vectors.

    >>> x, pull = unit_with_pull(torch.tensor([[0.0, 2.0]]))
    >>> x, pull(torch.tensor([[1.0, 1.0]]))
    (tensor([[0., 1.]]), tensor([[0.5000, 0.0000]]))
    """
    _, directions, divisors = polar(vectors)
    return directions, lambda grad: across(grad, directions).div_(divisors)


@torch.no_grad()
def two_units_with_pull(
    rows: Tensor, first: int
) -> tuple[Tensor, Tensor, Callable[[Tensor, float], Tensor]]:
    """`unit_with_pull` of two tables that lie in one, in place: half of the operations.

    Returns the units x of the first rows, y of the rest, and what takes a gradient by x @ y.T
    back to the rows, times a scale.

    >>> x, y, pull = two_units_with_pull(torch.tensor([[0.0, 2.0], [3.0, 0.0]]), 1)
    >>> x @ y.T, pull(torch.tensor([[1.0]]), 6.0)
    (tensor([[0.]]), tensor([[3., 0.],
            [0., 2.]]))
    """
    divisors = without_zero(torch.linalg.vector_norm(rows, dim=-1, keepdim=True))
    directions = rows.detach().div_(divisors)
    x, y = directions[:first], directions[first:]

    def pull(grad: Tensor, scale: float) -> Tensor:
        by_rows = torch.empty_like(directions)  # with beta 0 it is not read
        by_rows[:first].addmm_(grad, y, beta=0, alpha=scale)
        by_rows[first:].addmm_(grad.T, x, beta=0, alpha=scale)
        return across_(by_rows, directions).div_(divisors)

    return x, y, pull


def exp_(values: Tensor) -> Tensor:
    """e to the values, in place.

    Those of float32 on a CPU as powers of 2, which PyTorch makes in a third to a half of the time,
    with the same digits but for those that the exponent itself has not.

    >>> exp_(torch.tensor([0.0, 1.0, -math.inf]))
    tensor([1.0000, 2.7183, 0.0000])
    """
    if values.dtype == torch.float32 and not values.is_cuda:
        return values.mul_(LOG2_E).exp2_()
    return values.exp_()


def twice_sums_(table: Tensor, column: Tensor) -> Tensor:
    """2 table_ij (a_i + a_j), in place, of a column a, without a graph.

    As the gradient of a squared error, the one operation of PyTorch's that takes all three at once.
    A second table for the sums costs more than it looks: where the C library gives the memory of
    two back, the next call spends a third of its time to have it again, page by page.

    >>> twice_sums_(torch.ones(2, 2), torch.tensor([[1.0], [2.0]]))
    tensor([[4., 6.],
            [6., 8.]])
    """
    no_mean = 0
    torch.ops.aten.mse_loss_backward.grad_input(
        table, column, column.T.neg(), no_mean, grad_input=table
    )
    return table


def exponentials_(logits: Tensor, *, plus_one: bool = False) -> tuple[Tensor, Tensor]:
    """Turn logits into exp(logits - top), top the largest of the row, in place and without a graph.

    Returns, both (rows, 1), what to divide them by for the weights of a softmax, and the log sum
    exp. Over nothing these are 1 and -inf. plus_one: with a further logit of 0 in each row.

    >>> logits = torch.tensor([[1000.0, 0.0], [-math.inf, -math.inf]])
    >>> exponentials_(logits)
    (tensor([[1.],
            [1.]]), tensor([[1000.],
            [ -inf]]))
    """
    if cuda_kernels.takes(logits) and logits.is_contiguous() and len(logits):
        return _fused_exponentials(logits, plus_one)
    top = logits.amax(1, keepdim=True)
    top = top.clamp_(min=0.0 if plus_one else torch.finfo(top.dtype).min)
    sums = exp_(logits.sub_(top)).sum(1, keepdim=True)
    if plus_one:  # less 1, in units of exp(top): exact for the smallest sums, where top is 0
        sums += torch.expm1(-top)
        return sums + 1, top.add_(sums.log1p_())
    logs = top.add_(sums.log())
    return sums.clamp_(min=1), logs


def _fused_exponentials(logits: Tensor, plus_one: bool) -> tuple[Tensor, Tensor]:
    norms, logs = logits.new_empty(2, len(logits), 1)
    tables, options = (logits, norms, logs), (torch.finfo(logits.dtype).min, logits.shape[1])
    cuda_kernels.run(
        *((SOURCE, "exponentials"), logits, (len(logits), THREADS), *tables, *options),
        macros=(f"PLUS_ONE={int(plus_one)}",),
    )
    return norms, logs
