"""Squared distances by one matrix product, and their gradient.

|x|^2 + |y|^2 - 2 x.y loses all its digits where two rows are close, so every pair closer than CLOSE
of its rows' squared lengths is done again by differences, in the value and in the gradient.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

__all__ = ["CLOSE", "cross_pulled", "product_form", "pulled"]

CLOSE = 0.1  # of |x|^2 + |y|^2: above it the product form has a relative error of a few 1e-6
CHUNK = 2**22  # numbers of differences made at a time


def product_form(
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


def pulled(weights: Tensor, x: Tensor, centered: Tensor, pairs: Tensor | None) -> Tensor:
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


def cross_pulled(
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
