"""Distances on an NVIDIA GPU, a kernel each: nothing there waits for the number of close pairs."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import Tensor

from kinspace import cuda_kernels
from kinspace.product_form import CLOSE

__all__ = [
    "FINITE",
    "ROOTS",
    "SQUARES",
    "by_differences",
    "from_products",
    "pull_of_differences",
    "pulls_of_differences",
    "squared_differences",
]

# from products
SOURCE = Path(__file__).with_name("distances.cu")
THREADS = 512
FINITE, ROOTS, SQUARES = ("ROOT=1", "FINITE=1"), ("ROOT=1", "FINITE=0"), ("ROOT=0", "FINITE=0")
# by differences
DIFFERENCES = Path(__file__).with_name("differences.cu")
TILE, TILE_THREADS = 64, 256
LARGE = 2**32  # numbers of differences above which products are faster


def from_products(
    x: Tensor, products: Tensor, form: tuple[str, str], order: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The distances from the products of rows around their mean, and the largest in some parts.

    form: ROOTS, SQUARES, or FINITE, roots of which one that overflows is the largest number. order:
    that of the rows.
    """
    blocks = 4 * torch.cuda.get_device_properties(x.device).multi_processor_count
    distances, tops = torch.empty_like(products), products.new_empty(blocks)
    squares = products.diagonal()
    squares = squares.contiguous() if order is None else squares.index_select(0, order)
    tables = products, x.contiguous(), 0 if order is None else order, squares, distances, tops
    cuda_kernels.run(
        *((SOURCE, "distances_of_products"), x, (blocks, THREADS), *tables),
        *(CLOSE, torch.finfo(x.dtype).max, *x.shape),
        macros=(cuda_kernels.packed(products), *form),
    )
    return distances, tops


def by_differences(x: Tensor, y: Tensor) -> bool:
    """Whether squares by differences, and their gradient, take one kernel each."""
    return cuda_kernels.takes(x) and len(x) * len(y) * x.shape[1] <= LARGE


def squared_differences(x: Tensor, y: Tensor) -> Tensor:
    """||x_i - y_j||^2."""
    squares = x.new_empty(len(x), len(y))
    tables = x.contiguous(), y.contiguous(), squares
    _fill(squares, "squares_of_differences", *tables, len(x), *y.shape)
    return squares


def pull_of_differences(weights: Tensor, x: Tensor) -> Tensor:
    """2 sum_j w_ij (x_i - x_j)."""
    weights, x, slope = weights.contiguous(), x.contiguous(), torch.empty_like(x)
    _fill(slope, "pull_of_differences", weights, x, x, slope, len(x), *x.shape, 0)
    return slope


def pulls_of_differences(weights: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """2 sum_j w_ij (x_i - y_j) and 2 sum_i w_ij (y_j - x_i)."""
    weights, x, y = weights.contiguous(), x.contiguous(), y.contiguous()
    by_x, by_y, name = torch.empty_like(x), torch.empty_like(y), "pull_of_differences"
    _fill(by_x, name, weights, x, y, by_x, len(x), *y.shape, 0)
    _fill(by_y, name, weights, y, x, by_y, len(y), *x.shape, 1)
    return by_x, by_y


def _fill(result: Tensor, function: str, *arguments: Tensor | int) -> None:
    """Launch a kernel of differences, with a block for each tile of its result."""
    blocks = math.ceil(len(result) / TILE) * math.ceil(result.shape[1] / TILE)
    cuda_kernels.run((DIFFERENCES, function), result, (blocks, TILE_THREADS), *arguments)
