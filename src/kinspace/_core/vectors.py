"""Lengths and directions of vectors, distances between them, and groups of their dimensions.

Distances between the rows of two matrices are exact, and take one matrix product:

    ||x_i - y_j||^2 = ||x_i||^2 + ||y_j||^2 - 2 x_i . y_j

The right side takes no table of differences, but loses digits where two rows are close to each
other and far from the origin. So the rows are taken around their mean, which changes no distance,
and pairs that are close even then are computed again from their difference. Equal rows have
distance exactly 0. The gradient of a distance of 0 is 0.

Groups of dimensions are small embeddings within one vector, an ensemble (BIER, HDC, ABE). Groups
brought to one length count alike in the cosine of the whole, which is then the mean of the groups'
cosines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Integral

import torch
from torch import Tensor
from torch.nn import functional

from kinspace._core import checks
from kinspace._core.tensor_ops import full_precision, is_traced
from kinspace._kernels import accelerated

__all__ = [
    "Groups",
    "checked_groups",
    "cosines",
    "euclidean_distances",
    "fill_diagonal",
    "group_sizes",
    "half_angles",
    "norms",
    "off_diagonal",
    "paired_distances",
    "safe_sqrt",
    "squared_distance_table",
    "squared_distances",
    "stack_groups",
    "unit",
    "unit_groups",
]

# Share of ||x||^2 + ||y||^2 below which a squared distance is computed again: at the share the
# product has a relative error of about 1e-6 (float32) and 1e-11 (float64).
CLOSE = {torch.float32: 0.1, torch.float64: 1e-5}
Groups = int | tuple[int, ...]  # of dimensions: how many, or the size of each
FEW_NUMBERS = 2**15  # differences are simply made where all of them are no more numbers than this
MANY_NUMBERS = 2**24  # with more numbers of close differences, float32 goes to float64 instead


def safe_sqrt(squares: Tensor) -> Tensor:
    """Square root of values >= 0, with slope 0 at 0.

    >>> x = torch.tensor([0.0, 4.0], requires_grad=True)
    >>> safe_sqrt(x).sum().backward(); x.grad
    tensor([0.0000, 0.2500])
    """
    zero = squares == 0
    # sqrt has slope 0 at infinity, so that no derivative of any order meets 0 * inf
    return squares.masked_fill(zero, math.inf).sqrt().masked_fill(zero, 0.0)


def norms(vectors: Tensor) -> Tensor:
    """Length of each row, (..., 1); its gradient at 0 is 0.

    >>> norms(torch.tensor([[3.0, 4.0]]))
    tensor([[5.]])
    """
    # torch.linalg.vector_norm has no second derivative at 0
    return safe_sqrt(vectors.square().sum(-1, keepdim=True))


def unit(vectors: Tensor) -> Tensor:
    """Scale each row to length 1; a zero row stays zero and gets no gradient.

    >>> unit(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    squares = vectors.square().sum(-1, keepdim=True)
    # an infinite length for 0, so that the quotient and its gradient are 0
    return vectors / squares.masked_fill(squares == 0, math.inf).sqrt()


@full_precision
def squared_distances(x: Tensor, y: Tensor | None = None) -> Tensor:
    """||x_i - y_j||^2, (rows of x, rows of y); y = x where it is left out.

    >>> squared_distances(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
    tensor([[ 0., 25.],
            [25.,  0.]])
    """
    other = x if y is None else y
    # A compiler fuses the differences with their sum and makes no table of them.
    if is_traced(x) or len(x) * len(other) * x.shape[1] <= FEW_NUMBERS:
        return (x[:, None] - other).square().sum(-1)
    return squared_distance_table(x, other, own=y is None)


@full_precision
def euclidean_distances(x: Tensor, y: Tensor | None = None) -> Tensor:
    """||x_i - y_j||, (rows of x, rows of y); y = x where it is left out.

    >>> euclidean_distances(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
    tensor([[0., 5.],
            [5., 0.]])
    """
    return safe_sqrt(squared_distances(x, y))


@full_precision
def paired_distances(
    x: Tensor, first: Tensor, second: Tensor, y: Tensor | None = None, *, squared: bool = False
) -> Tensor:
    """||x_i - y_j|| of listed pairs: i in `first`, j in `second`, two tensors of one shape.

    y = x where it is left out. squared: their squares.

    >>> x = torch.tensor([[0.0], [3.0], [5.0]])
    >>> paired_distances(x, torch.tensor([0, 0]), torch.tensor([1, 2]))
    tensor([3., 5.])
    """
    other = x if y is None else y
    root = (lambda squares: squares) if squared else safe_sqrt
    if first.numel() * x.shape[1] > 2 * len(x) * len(other) and not is_traced(x):
        table = root(squared_distances(x, y))  # is smaller than the differences
        return table.take(first * len(other) + second)
    return root((_rows(x, first) - _rows(other, second)).square().sum(-1))


def cosines(x: Tensor, y: Tensor | None = None) -> Tensor:
    """Cosines of the rows of x and of y, (rows of x, rows of y); y = x where it is left out.

    >>> cosines(torch.tensor([[2.0, 0.0], [3.0, 4.0]]))
    tensor([[1.0000, 0.6000],
            [0.6000, 1.0000]])
    """
    x = unit(x)
    return x @ (x if y is None else unit(y)).T


def half_angles(x: Tensor, y: Tensor) -> Tensor:
    """Half the angles of paired rows of length 1, (rows, 1); exact for small ones too.

    An arc cosine is not: the cosine of a small angle is rounded to 1.

    >>> half_angles(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]]))
    tensor([[0.7854]])
    """
    return torch.atan2(norms(x - y), norms(x + y))


def fill_diagonal(matrix: Tensor, value: float) -> Tensor:
    """A matrix with another diagonal, which has no gradient.

    >>> fill_diagonal(torch.ones(2, 2), 0.0)
    tensor([[0., 1.],
            [1., 0.]])
    """
    return matrix.diagonal_scatter(matrix.new_full((min(matrix.shape),), value))


def off_diagonal(matrix: Tensor) -> Tensor:
    """The rows of a square matrix without its diagonal, (n, n - 1).

    >>> off_diagonal(torch.arange(9).view(3, 3))
    tensor([[1, 2],
            [3, 5],
            [6, 7]])
    """
    size = len(matrix)
    return matrix.flatten()[1:].view(size - 1, size + 1)[:, :-1].reshape(size, size - 1)


@accelerated
def squared_distance_table(x: Tensor, y: Tensor, *, own: bool) -> Tensor:
    """The table by one matrix product (module docstring). own: y is x."""
    middle = y.detach().mean(0)
    x_around = x - middle
    y_around = x_around if own else y - middle
    x_squares = x_around.square().sum(1)
    y_squares = x_squares if own else y_around.square().sum(1)
    products = torch.addmm(y_squares, x_around, y_around.T, alpha=-2)
    squares = products.add_(x_squares[:, None])
    rows, columns = _close_pairs(squares.detach(), x_squares, y_squares, own=own)
    if not len(rows):
        return squares
    if len(rows) * x.shape[1] > MANY_NUMBERS and _has_more_digits(x):
        exact = x.double()
        return squared_distance_table(exact, exact if own else y.double(), own=own).to(x.dtype)
    # from the rows themselves: moving them rounds away what little is between them
    again = (_rows(x, rows) - _rows(y, columns)).square().sum(1)
    return squares.index_put((rows, columns), again)


@torch.no_grad()
def _close_pairs(squares: Tensor, x_squares: Tensor, y_squares: Tensor, own: bool) -> list[Tensor]:
    """Indices of the pairs whose difference is to be made.

    own: of one set of rows. A row with itself is not in question; its square becomes exactly 0. Its
    gradient is 0 as it is: that of ||x||^2 + ||x||^2 - 2 x.x.
    """
    share = CLOSE[squares.dtype]
    if own:
        squares.fill_diagonal_(math.inf)
    found = [torch.empty(0, dtype=torch.long, device=squares.device)] * 2
    largest = x_squares.amax()
    most = share * (largest + (largest if own else y_squares.amax()))  # of any two rows
    if not squares.amin() > most:  # or NaN; seldom: most batches have no close pair
        found = list((squares <= (share * x_squares)[:, None] + share * y_squares).nonzero().T)
    if own:
        squares.fill_diagonal_(0.0)
    return found


def _has_more_digits(x: Tensor) -> bool:
    return x.dtype == torch.float32 and x.device.type != "mps"  # which has no float64


def _rows(x: Tensor, index: Tensor) -> Tensor:
    """x[index], several times faster than indexing."""
    rows = x.index_select(0, index.flatten())
    return rows.view(*index.shape, x.shape[1])


def checked_groups(name: str, groups: int | Sequence[int]) -> Groups:
    """A number of groups of dimensions, or the size of each.

    >>> checked_groups("groups", 3), checked_groups("groups", [96, 160, 256])
    (3, (96, 160, 256))
    """
    if isinstance(groups, (list, tuple)) and groups:
        return tuple(checks.integer(name, size, at_least=1) for size in groups)
    if isinstance(groups, Integral):
        return checks.integer(name, groups, at_least=1)
    raise ValueError(f"{name}: expected a number of groups or a list of sizes, got {groups!r}")


def group_sizes(groups: int | Sequence[int], dim: int) -> list[int]:
    """The sizes of the groups of so many dimensions.

    A number shares them out evenly, one more to the first groups where it does not come out even;
    there are never more groups than dimensions.

    >>> group_sizes(3, 8), group_sizes(3, 2), group_sizes([2, 6], 8)
    ([3, 3, 2], [1, 1], [2, 6])
    """
    groups = checked_groups("groups", groups)
    if isinstance(groups, int):
        groups = min(groups, dim)
        return [dim // groups + (place < dim % groups) for place in range(groups)]
    if sum(groups) != dim:
        raise ValueError(
            f"groups: expected sizes of sum {dim}, the dimension, "
            f"got {list(groups)} of sum {sum(groups)}"
        )
    return list(groups)


def stack_groups(embeddings: Tensor, sizes: Sequence[int]) -> Tensor:
    """The groups as a table (batch, groups, largest size); shorter ones end in zeros.

    >>> stack_groups(torch.tensor([[3.0, 4.0, 9.0]]), [2, 1])
    tensor([[[3., 4.],
             [9., 0.]]])
    """
    parts = embeddings.split(list(sizes), 1)
    widest = max(sizes)
    return torch.stack([functional.pad(part, (0, widest - part.shape[1])) for part in parts], 1)


def unit_groups(embeddings: Tensor, sizes: Sequence[int]) -> Tensor:
    """Every group at the same length and the whole at length 1; a zero group stays zero.

    >>> unit_groups(torch.tensor([[3.0, 4.0, 9.0]]), [2, 1])
    tensor([[0.4243, 0.5657, 0.7071]])
    """
    if len(sizes) == 1:
        return unit(embeddings)
    parts = [unit(part) for part in embeddings.split(list(sizes), 1)]
    return torch.cat(parts, 1) / math.sqrt(len(parts))
