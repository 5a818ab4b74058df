"""Distances between the rows of two matrices, exact where it matters and fast where it is large.

Small problems take the differences x_i - y_j. Large ones use |x|^2 + |y|^2 - 2 x.y, one matrix
product, around the mean of the rows; that form loses all its digits where two rows are close,
so every pair closer than CLOSE of its rows' squared lengths is done again by differences, in the
value and in the gradient. Identical rows are at distance exactly 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from kinspace.cuda_kernels import CudaKernel, built, numbers, takes
from kinspace.numerics import full_precision, safe_sqrt

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
CLOSE = 0.1  # of |x|^2 + |y|^2: above it the product form has a relative error of a few 1e-6
CHUNK = 2**22  # numbers of differences made at a time
LISTED = 4  # tables of all pairs: listed ones are done one by one if their differences need less
# of the kernels
SOURCE = Path(__file__).with_suffix(".cu")
THREADS = 512
FINITE, ROOTS, SQUARES = ("ROOT=1", "FINITE=1"), ("ROOT=1", "FINITE=0"), ("ROOT=0", "FINITE=0")
DIFFERENCES = Path(__file__).with_name("differences.cu")
TILE, TILE_THREADS = 64, 256
LARGE_ON_GPU = 2**32  # numbers of differences above which products are faster


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
    if _few(x, x) or not takes(x):
        return partial(_ordered, x)
    return partial(_from_products, x, _products(x), FINITE)


@torch.no_grad()
def _ordered(x: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    distances = euclidean_distances(x.index_select(0, order))
    distances.nan_to_num_(nan=torch.finfo(distances.dtype).max)
    return distances, distances.max()[None]


def _products(x: Tensor) -> Tensor:
    """Of all pairs of rows around their mean."""
    centered = x - x.mean(0)
    return centered @ centered.T


def _from_products(
    x: Tensor, products: Tensor, form: tuple[str, str], order: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The distances by a kernel, and their largest in some parts; order: that of the rows."""
    blocks = 4 * torch.cuda.get_device_properties(x.device).multi_processor_count
    macros = *numbers(products), f"THREADS={THREADS}", *form
    with torch.cuda.device_of(x):
        kernel = built(SOURCE, "distances_of_products", macros, x.device)
        return _launch(kernel, blocks, products, x.contiguous(), order)


def _launch(
    kernel: CudaKernel, blocks: int, products: Tensor, x: Tensor, order: Tensor | None
) -> tuple[Tensor, Tensor]:
    distances, tops = torch.empty_like(products), products.new_empty(blocks)
    squares = products.diagonal()
    squares = squares.contiguous() if order is None else squares.index_select(0, order)
    limits = CLOSE, torch.finfo(x.dtype).max
    tables = products, x, 0 if order is None else order, squares, distances, tops
    kernel.launch(blocks, THREADS, *tables, *limits, *x.shape)
    return distances, tops


def _distances(x: Tensor, y: Tensor | None, root: bool) -> Tensor:
    other = x if y is None else y
    if _few(x, other) and not _differences_by_kernel(x, other):
        squares = (x[:, None] - other).square().sum(-1)
        return safe_sqrt(squares) if root else squares
    if y is None:
        graph = x.requires_grad and torch.is_grad_enabled()
        if takes(x) and not graph:
            # nothing waits for the number of close pairs, as for their gradient
            if _differences_by_kernel(x, x):
                return _squares_apart(x, x).sqrt_() if root else _squares_apart(x, x)
            found: Tensor = _from_products(x, _products(x), ROOTS if root else SQUARES)[0]
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
    if _differences_by_kernel(x, x):
        table, back = _squares_apart(x, x), partial(_pulled_together, x=x)
    elif _few(x, x):
        apart = x[:, None] - x
        table, back = apart.square().sum(-1), partial(_pulled_apart, apart=apart)
    else:
        centered = x - x.mean(0)
        table, pairs = _product_form(x, x, centered, centered)
        table.fill_diagonal_(0)
        back = partial(_pulled, x=x, centered=centered, pairs=pairs)
    if not root:
        return table, lambda grad: back(grad + grad.T)
    roots = table.sqrt_()

    def from_roots(grad: Tensor) -> Tensor:
        grad = grad.div_(functional.threshold(roots, 0, math.inf, inplace=True)).mul_(0.5)
        return back(grad + grad.T)

    return roots, from_roots


@torch.no_grad()
def cross_distances_with_pull(
    x: Tensor, y: Tensor
) -> tuple[Tensor, Callable[[Tensor], tuple[Tensor, Tensor]]]:
    """`distances_with_pull` between the rows of x and those of y, squared: the pull gives both.

    >>> squares, pull = cross_distances_with_pull(torch.tensor([[0.0]]), torch.tensor([[3.0]]))
    >>> squares, pull(torch.tensor([[1.0]]))
    (tensor([[9.]]), (tensor([[-6.]]), tensor([[6.]])))
    """
    if _differences_by_kernel(x, y):
        return _squares_apart(x, y), lambda grad: _pulled_to_each(grad, x, y)
    if _few(x, y):
        apart = x[:, None] - y
        return apart.square().sum(-1), lambda grad: (
            2 * torch.einsum("ij,ijd->id", grad, apart),
            -2 * torch.einsum("ij,ijd->jd", grad, apart),
        )
    middle = y.mean(0)
    around = x - middle, y - middle
    squares, pairs = _product_form(x, y, *around)
    return squares, lambda grad: _cross_pulled(grad, (x, y), around, pairs)


def _differences_by_kernel(x: Tensor, y: Tensor) -> bool:
    """Whether squares by differences, and their gradient, take one kernel each."""
    return takes(x) and len(x) * len(y) * x.shape[1] <= LARGE_ON_GPU


def _squares_apart(x: Tensor, y: Tensor) -> Tensor:
    """||x_i - y_j||^2 by a kernel."""
    squares = x.new_empty(len(x), len(y))
    tables = x.contiguous(), y.contiguous(), squares
    _fill(squares, "squares_of_differences", *tables, len(x), *y.shape)
    return squares


def _pulled_to_each(weights: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """`_cross_pulled`, 2 sum_j w_ij (x_i - y_j) and 2 sum_i w_ij (y_j - x_i), by a kernel each."""
    weights, x, y = weights.contiguous(), x.contiguous(), y.contiguous()
    by_x, by_y, name = torch.empty_like(x), torch.empty_like(y), "pull_of_differences"
    _fill(by_x, name, weights, x, y, by_x, len(x), *y.shape, 0)
    _fill(by_y, name, weights, y, x, by_y, len(y), *x.shape, 1)
    return by_x, by_y


def _pulled_together(weights: Tensor, x: Tensor) -> Tensor:
    """`_pulled`, 2 sum_j w_ij (x_i - x_j), by a kernel."""
    weights, x, slope = weights.contiguous(), x.contiguous(), torch.empty_like(x)
    _fill(slope, "pull_of_differences", weights, x, x, slope, len(x), *x.shape, 0)
    return slope


def _fill(result: Tensor, function: str, *arguments: Tensor | int) -> None:
    """Launch a kernel of differences, with a block for each tile of its result."""
    blocks = math.ceil(len(result) / TILE) * math.ceil(result.shape[1] / TILE)
    macros = numbers(result)[0], f"THREADS={TILE_THREADS}"
    with torch.cuda.device_of(result):
        kernel = built(DIFFERENCES, function, macros, result.device)
        kernel.launch(blocks, TILE_THREADS, *arguments)


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


def _product_form(
    x: Tensor, y: Tensor, around_x: Tensor, around_y: Tensor
) -> tuple[Tensor, Tensor | None]:
    """The squared distances and the (2, close) pairs that were done again by differences.

    The product takes the rows around their mean; the differences of close rows take the rows
    themselves, since moving them rounds away what little is between them.
    """
    triangle = y is x
    x_squares = around_x.square().sum(1)
    y_squares = x_squares if triangle else around_y.square().sum(1)
    squares = torch.addmm(y_squares, around_x, around_y.T, alpha=-2).add_(x_squares[:, None])
    if torch.compiler.is_compiling():  # the number of close pairs is not known there
        return squares.clamp_(min=0), None
    near = CLOSE * x_squares
    close = squares <= near[:, None] + (near if triangle else CLOSE * y_squares)
    pairs = (close.triu_(1) if triangle else close).nonzero().T
    for rows, columns, _ in _chunks(pairs, x.shape[1], pairs[0] if pairs.shape[1] else None):
        exact = (x[rows] - y[columns]).square_().sum(1)
        squares[rows, columns] = exact
        if triangle:
            squares[columns, rows] = exact
    return squares, pairs


def _chunks(
    pairs: Tensor | None, dim: int, values: Tensor | None
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """The pairs, and one value for each, in parts whose differences fit CHUNK."""
    if pairs is not None and values is not None:
        step = max(1, CHUNK // dim)
        for start in range(0, len(values), step):
            rows, columns = pairs[:, start : start + step]
            yield rows, columns, values[start : start + step]


def _take(weights: Tensor, pairs: Tensor | None) -> Tensor | None:
    """The entries of a table at the close pairs, which become 0 in the table itself."""
    if pairs is None or not pairs.shape[1]:
        return None
    taken = weights[pairs[0], pairs[1]]
    weights[pairs[0], pairs[1]] = 0
    return taken


def _pulled_apart(weights: Tensor, apart: Tensor) -> Tensor:
    return 2 * torch.einsum("ij,ijd->id", weights, apart)


def _pulled(weights: Tensor, x: Tensor, centered: Tensor, pairs: Tensor | None) -> Tensor:
    """2 sum_j w_ij (x_i - x_j) for symmetric weights, which are used up."""
    close = _take(weights, pairs)
    if close is not None and pairs is not None:
        _take(weights, pairs.flip(0))
    own = weights.sum(1, keepdim=True) * centered
    slope = torch.addmm(own, weights, centered, beta=2, alpha=-2)
    for rows, columns, weight in _chunks(pairs, x.shape[1], close):
        pull = 2 * weight[:, None] * (x[rows] - x[columns])
        slope = slope.index_add(0, rows, pull).index_add(0, columns, -pull)
    return slope


def _cross_pulled(
    weights: Tensor,
    rows: tuple[Tensor, Tensor],
    around: tuple[Tensor, Tensor],
    pairs: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """2 sum_j w_ij (x_i - y_j) and 2 sum_i w_ij (y_j - x_i); the weights are used up."""
    (x, y), (around_x, around_y) = rows, around
    close = _take(weights, pairs)
    x_own, y_own = weights.sum(1)[:, None] * around_x, weights.sum(0)[:, None] * around_y
    x_slope = torch.addmm(x_own, weights, around_y, beta=2, alpha=-2)
    y_slope = torch.addmm(y_own, weights.T, around_x, beta=2, alpha=-2)
    for first, second, own in _chunks(pairs, x.shape[1], close):
        pull = 2 * own[:, None] * (x[first] - y[second])
        x_slope = x_slope.index_add(0, first, pull)
        y_slope = y_slope.index_add(0, second, -pull)
    return x_slope, y_slope


class _SelfDistances(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, root: bool) -> Tensor:
        centered = pairs = None
        if _differences_by_kernel(x, x):
            squares = _squares_apart(x, x)
        else:
            centered = x - x.mean(0)
            squares, pairs = _product_form(x, x, centered, centered)
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
            return _pulled_together(grad + grad.T, x), None
        return _pulled(grad + grad.T, x, centered, pairs), None


class _CrossDistances(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        if _differences_by_kernel(x, y):
            ctx.save_for_backward(x, y, None, None, None)
            return _squares_apart(x, y)
        middle = y.mean(0)
        around_x, around_y = x - middle, y - middle
        squares, pairs = _product_form(x, y, around_x, around_y)
        ctx.save_for_backward(x, y, around_x, around_y, pairs)
        return squares

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, y, around_x, around_y, pairs = ctx.saved_tensors
        if around_x is None and not torch.is_grad_enabled():
            return _pulled_to_each(grad, x, y)
        if torch.is_grad_enabled():  # for a second derivative
            middle = y.mean(0)
            around_x, around_y = x - middle, y - middle
        weights = grad.clone() if pairs is not None and pairs.shape[1] else grad
        return _cross_pulled(weights, (x, y), (around_x, around_y), pairs)
