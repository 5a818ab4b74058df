"""Distances between the rows of two matrices, exact where it matters and fast where it is large.

Small problems take the differences x_i - y_j. Large ones use |x|^2 + |y|^2 - 2 x.y, one matrix
product, around the mean of the rows, with close pairs done again (`product_form`), or on a GPU a
kernel (`distance_kernels`). Identical rows are at distance exactly 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from kinspace import cuda_kernels
from kinspace.distance_kernels import (
    FINITE,
    ROOTS,
    SQUARES,
    by_differences,
    from_products,
    pull_of_differences,
    pulls_of_differences,
    squared_differences,
)
from kinspace.numerics import full_precision, safe_sqrt
from kinspace.product_form import cross_pulled, product_form, pulled

__all__ = [
    "cross_distances_with_pull",
    "distances_with_pull",
    "euclidean_distances",
    "finite_distances",
    "listed_distances_with_pull",
    "squared_distances",
]

SMALL = 2**15  # numbers in the table of differences up to which it is simply made
SMALL_ON_GPU = 2**24  # there it takes some microseconds, and the host need not wait for close pairs
LISTED = 4  # tables of all pairs: listed ones are done one by one if their differences need less


@full_precision
def squared_distances(x: Tensor, y: Tensor | None = None) -> Tensor:
    """||x_i - y_j||^2, (rows of x, rows of y); y = x where left out.

    >>> squared_distances(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
    tensor([[ 0., 25.],
            [25.,  0.]])
    """
    return _distances(x, y, root=False)


@full_precision
def euclidean_distances(x: Tensor, y: Tensor | None = None) -> Tensor:
    """||x_i - y_j||, whose gradient at distance 0 is 0.

    >>> euclidean_distances(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
    tensor([[0., 5.],
            [5., 0.]])
    """
    return _distances(x, y, root=True)


@full_precision
@torch.no_grad()
def finite_distances(x: Tensor) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """`euclidean_distances` without a gradient, of the rows in an order that is told later.

    What it returns takes the order, and gives the distances and the largest of them in each of some
    parts. One that overflows is the largest number. On a GPU the host can look for the order while
    products are made, and nothing waits for the number of close pairs, as it does where these have
    a gradient.

    >>> in_order = finite_distances(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
    >>> in_order(torch.tensor([1, 0]))
    (tensor([[0., 5.],
            [5., 0.]]), tensor([5.]))
    """
    if _few(x, x) or not cuda_kernels.takes(x):
        return partial(_ordered, x)
    return partial(from_products, x, _products(x), FINITE)


@torch.no_grad()
def _ordered(x: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    distances = euclidean_distances(x.index_select(0, order))
    distances.nan_to_num_(nan=torch.finfo(distances.dtype).max)
    return distances, distances.max()[None]


def _products(x: Tensor) -> Tensor:
    """Of all pairs of rows around their mean."""
    centered = x - x.mean(0)
    return centered @ centered.T


def _distances(x: Tensor, y: Tensor | None, root: bool) -> Tensor:
    other = x if y is None else y
    if _few(x, other) and not by_differences(x, other):
        squares = (x[:, None] - other).square().sum(-1)
        return safe_sqrt(squares) if root else squares
    if y is None:
        graph = x.requires_grad and torch.is_grad_enabled()
        if cuda_kernels.takes(x) and not graph:
            # nothing waits for the number of close pairs, as for their gradient
            if by_differences(x, x):
                return squared_differences(x, x).sqrt_() if root else squared_differences(x, x)
            found: Tensor = from_products(x, _products(x), ROOTS if root else SQUARES)[0]
            return found
        return _SelfDistances.apply(x, root)  # type: ignore[no-any-return,no-untyped-call]
    squares = _CrossDistances.apply(x, y)  # type: ignore[no-untyped-call]
    return safe_sqrt(squares) if root else squares


def _few(x: Tensor, y: Tensor) -> bool:
    """Whether the differences of all pairs are simply made."""
    return len(x) * len(y) * x.shape[1] <= (SMALL_ON_GPU if x.is_cuda else SMALL)


@torch.no_grad()
def distances_with_pull(
    x: Tensor, *, root: bool = False
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """The distances between the rows of x, squared or not, without a graph, and their pull.

    The pull gives the gradient by x of a value, from that by the table of distances. It uses up
    the one it gets, and the table.

    >>> squares, pull = distances_with_pull(torch.tensor([[0.0], [3.0]]))
    >>> squares, pull(torch.tensor([[0.0, 1.0], [0.0, 0.0]]))
    (tensor([[0., 9.],
            [9., 0.]]), tensor([[-6.],
            [ 6.]]))
    """
    back: Callable[[Tensor], Tensor]
    if by_differences(x, x):
        table, back = squared_differences(x, x), partial(pull_of_differences, x=x)
    elif _few(x, x):
        apart = x[:, None] - x
        table, back = apart.square().sum(-1), partial(_pulled_apart, apart=apart)
    else:
        centered = x - x.mean(0)
        table, pairs = product_form(x, x, centered, centered)
        table.fill_diagonal_(0)
        back = partial(pulled, x=x, centered=centered, pairs=pairs)
    if not root:
        return table, lambda grad: back(grad + grad.T)
    roots = table.sqrt_()

    def from_roots(grad: Tensor) -> Tensor:
        grad = grad.div_(functional.threshold(roots, 0, math.inf, inplace=True)).mul_(0.5)
        return back(grad + grad.T)

    return roots, from_roots


def _pulled_apart(weights: Tensor, apart: Tensor) -> Tensor:
    return 2 * torch.einsum("ij,ijd->id", weights, apart)


@torch.no_grad()
def cross_distances_with_pull(
    x: Tensor, y: Tensor
) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, Tensor]]]:
    """`distances_with_pull` between the rows of x and those of y, squared: the pull gives both.

    >>> squares, pull = cross_distances_with_pull(torch.tensor([[0.0]]), torch.tensor([[3.0]]))
    >>> squares, pull(torch.tensor([[1.0]]))
    (tensor([[9.]]), (tensor([[-6.]]), tensor([[6.]])))
    """
    if by_differences(x, y):
        return squared_differences(x, y), lambda grad: pulls_of_differences(grad, x, y)
    if _few(x, y):
        apart = x[:, None] - y
        return apart.square().sum(-1), lambda grad: (
            2 * torch.einsum("ij,ijd->id", grad, apart),
            -2 * torch.einsum("ij,ijd->jd", grad, apart),
        )
    middle = y.mean(0)
    around = x - middle, y - middle
    squares, pairs = product_form(x, y, *around)
    return squares, lambda grad: cross_pulled(grad, (x, y), around, pairs)


@torch.no_grad()
def listed_distances_with_pull(
    x: Tensor, first: Tensor, second: Tensor
) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """||x_i - x_j|| of the pairs (i, j) in two lists, without a graph, and their pull.

    By differences, or where these would be too many from the table of all distances.

    >>> x = torch.tensor([[0.0], [3.0], [5.0]])
    >>> distances, pull = listed_distances_with_pull(x, torch.tensor([0, 0]), torch.tensor([1, 2]))
    >>> distances, pull(torch.tensor([1.0, 0.0]))
    (tensor([3., 5.]), tensor([[-1.],
            [ 1.],
            [ 0.]]))
    """
    if first.numel() * x.shape[1] <= LISTED * len(x) ** 2:
        apart = x.index_select(0, first).sub_(x.index_select(0, second))
        distances = torch.linalg.vector_norm(apart, dim=1)

        def pull(grad: Tensor) -> Tensor:
            flow = apart.mul_((grad / functional.threshold(distances, 0, math.inf))[:, None])
            slope = torch.zeros_like(x).index_add_(0, first, flow)
            return slope.index_add_(0, second, flow, alpha=-1)

        return distances, pull
    table, back = distances_with_pull(x, root=True)
    places = first * len(x) + second

    def pull_table(grad: Tensor) -> Tensor:
        return back(torch.zeros_like(table).put_(places, grad, accumulate=True))

    return table.take(places), pull_table


class _SelfDistances(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, root: bool) -> Tensor:
        centered = pairs = None
        if by_differences(x, x):
            squares = squared_differences(x, x)
        else:
            centered = x - x.mean(0)
            squares, pairs = product_form(x, x, centered, centered)
            squares.fill_diagonal_(0)
        roots = squares.sqrt_() if root else None
        ctx.save_for_backward(x, centered, pairs, roots)
        return squares

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, centered, pairs, roots = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative
            centered = x - x.mean(0)
        if roots is not None:
            grad = grad / functional.threshold(roots, 0, math.inf).mul_(2)
        if centered is None:
            return pull_of_differences(grad + grad.T, x), None
        return pulled(grad + grad.T, x, centered, pairs), None


class _CrossDistances(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        if by_differences(x, y):
            ctx.save_for_backward(x, y, None, None, None)
            return squared_differences(x, y)
        middle = y.mean(0)
        around_x, around_y = x - middle, y - middle
        squares, pairs = product_form(x, y, around_x, around_y)
        ctx.save_for_backward(x, y, around_x, around_y, pairs)
        return squares

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, y, around_x, around_y, pairs = ctx.saved_tensors
        if around_x is None and not torch.is_grad_enabled():
            return pulls_of_differences(grad, x, y)
        if torch.is_grad_enabled():  # for a second derivative
            middle = y.mean(0)
            around_x, around_y = x - middle, y - middle
        weights = grad.clone() if pairs is not None and pairs.shape[1] else grad
        return cross_pulled(weights, (x, y), (around_x, around_y), pairs)
