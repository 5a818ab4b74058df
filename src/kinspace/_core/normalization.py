"""Lengths and directions of vectors."""

from __future__ import annotations

import math

import torch
from torch import Tensor

__all__ = ["norms", "safe_sqrt", "unit", "zero_to_inf"]


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
    return vectors / zero_to_inf(norms(vectors))


def zero_to_inf(lengths: Tensor) -> Tensor:
    """Lengths to divide by: infinity for 0, so that the quotient and its gradient are 0.

    >>> zero_to_inf(torch.tensor([0.0, 2.0]))
    tensor([inf, 2.])
    """
    # the smallest as well: dividing by them overflows
    return lengths.masked_fill(lengths <= torch.finfo(lengths.dtype).tiny, math.inf)
