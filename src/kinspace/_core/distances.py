"""How far two embeddings are apart: one interface for the losses whose formula says only "D".

    euclidean            ||x - y||
    squared_euclidean    ||x - y||^2
    manhattan            sum_k |x_k - y_k|
    cosine               1 - x.y / (||x|| ||y||)
    dot                  -x.y, no distance, but small where a product is large
    hyperbolic           2 arsinh(sqrt(sinh^2((a - b)/2) + sinh a sinh b ||u - v||^2 / 4))

The last is the geodesic distance in the hyperbolic space of curvature -1 of the points exp_0(x) and
exp_0(y): an embedding is a direction u and a length a from the origin. Lengths are cut at 8, where
hyperbolic sines still have room in float32 and the edge of the Poincare ball is 3e-7 away.

A similarity, for formulas that say "s", is -D, and 1 - D for the cosine.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from kinspace._core import checks
from kinspace._core.tensor_ops import full_precision
from kinspace._core.vectors import (
    cosines,
    norms,
    paired_distances,
    safe_sqrt,
    squared_distances,
    unit,
)

__all__ = ["DISTANCES", "distance_table", "listed_distances", "similarity_table"]

FARTHEST = 8.0  # from the origin of the hyperbolic space


def _euclidean(x: Tensor, y: Tensor | None) -> Tensor:
    return safe_sqrt(squared_distances(x, y))


def _manhattan(x: Tensor, y: Tensor | None) -> Tensor:
    return (x[:, None] - (x if y is None else y)).abs().sum(-1)


def _cosine(x: Tensor, y: Tensor | None) -> Tensor:
    return 1 - cosines(x, y)


def _dot(x: Tensor, y: Tensor | None) -> Tensor:
    return -(x @ (x if y is None else y).T)


def _hyperbolic(x: Tensor, y: Tensor | None) -> Tensor:
    a = norms(x).clamp(max=FARTHEST)  # (rows, 1)
    b = a if y is None else norms(y).clamp(max=FARTHEST)
    apart = squared_distances(unit(x), None if y is None else unit(y)) / 4
    squares = ((a - b.T) / 2).sinh().square() + a.sinh() * b.T.sinh() * apart
    return 2 * safe_sqrt(squares).asinh()


DISTANCES: dict[str, Callable[[Tensor, Tensor | None], Tensor]] = {
    "cosine": _cosine,
    "dot": _dot,
    "euclidean": _euclidean,
    "hyperbolic": _hyperbolic,
    "manhattan": _manhattan,
    "squared_euclidean": squared_distances,
}


@full_precision
def distance_table(x: Tensor, y: Tensor | None = None, *, distance: str) -> Tensor:
    """The distances of the rows of x and of y, (rows of x, rows of y); y = x where left out.

    >>> import torch
    >>> x = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    >>> distance_table(x, distance="manhattan"), distance_table(x, distance="hyperbolic")
    (tensor([[0., 7.],
            [7., 0.]]), tensor([[0., 5.],
            [5., 0.]]))
    """
    return DISTANCES[checks.choice("distance", distance, DISTANCES)](x, y)


@full_precision
def similarity_table(x: Tensor, y: Tensor | None = None, *, distance: str) -> Tensor:
    """The same as similarities: -D, or the cosine.

    >>> import torch
    >>> similarity_table(torch.eye(2), distance="cosine")
    tensor([[1., 0.],
            [0., 1.]])
    """
    if distance == "cosine":
        return cosines(x, y)
    return -distance_table(x, y, distance=distance)


@full_precision
def listed_distances(
    x: Tensor, first: Tensor, second: Tensor, y: Tensor | None = None, *, distance: str
) -> Tensor:
    """The distances of listed pairs: rows `first` of x, and `second` of y, which is x if left out.

    >>> import torch
    >>> x = torch.tensor([[0.0], [3.0], [5.0]])
    >>> listed_distances(x, torch.tensor([0]), torch.tensor([2]), distance="manhattan")
    tensor([5.])
    """
    if distance in ("euclidean", "squared_euclidean"):
        return paired_distances(x, first, second, y, squared=distance == "squared_euclidean")
    table = distance_table(x, y, distance=distance)
    return table.take(first * table.shape[1] + second)
