"""Classes of about one size as one block, its samples known by their squared distances.

Small classes as the table of all their distances, large ones by their vectors. The product form
|x|^2 + |y|^2 - 2 x.y loses its digits where two samples are close; such pairs are done again, by
differences in the end, so that equal rows are at distance 0 and others are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

__all__ = ["PaddedClasses", "Points", "TablePoints", "VectorPoints", "padded_classes"]

TABLE = 512  # samples up to which a class is turned into its table of distances
GROWTH = 1.25  # the largest class of a group has at most so many times the samples of the smallest
# Below this share of |x|^2 + |y|^2, or this square, the product form is done again: at the share
# float32 has three digits left (six on most pairs) and float64 seven.
CLOSE = {torch.float32: (1e-3, 1e-30), torch.float64: (1e-9, 0.0)}
# Numbers in the tables of one group, and in the vectors that are turned into tables at a time.
GROUP = {"cpu": 2**21, "cuda": 2**27}
CHUNK = {"cpu": 2**19, "cuda": 2**26}


class Points(Protocol):
    """The samples of a group of classes, known by their squared distances."""

    def to_samples(self, picks: Tensor) -> Tensor:
        """From all samples to the picked ones (classes, picks): (classes, size, picks)."""

    def to_means(self, shares: Tensor) -> Tensor:
        """From all samples to the means (classes, size, clusters): (classes, size, clusters)."""

    def select(self, which: Tensor) -> Points:
        """Those classes alone."""


class TablePoints:
    """Points by the table of their squared distances, (classes, size, size)."""

    def __init__(self, squares: Tensor) -> None:
        self.squares = squares

    def to_samples(self, picks: Tensor) -> Tensor:
        """See `Points`."""
        return self.squares.gather(2, picks[:, None].expand(-1, self.squares.shape[1], -1))

    def to_means(self, shares: Tensor) -> Tensor:
        """See `Points`."""
        reach = self.squares @ shares  # (classes, size, clusters)
        return reach.sub_((shares * reach).sum(1, keepdim=True), alpha=0.5).clamp_(min=0)

    def select(self, which: Tensor) -> Points:
        """See `Points`."""
        return TablePoints(self.squares[which])


class VectorPoints:
    """Points by their vectors, (classes, size, dim)."""

    def __init__(self, vectors: Tensor) -> None:
        self.vectors = vectors
        self.norms = torch.linalg.vector_norm(vectors, dim=2).square_()

    def to_samples(self, picks: Tensor) -> Tensor:
        """See `Points`."""
        picked = self.vectors.gather(1, picks[..., None].expand(-1, -1, self.vectors.shape[2]))
        return _squared_distances(self.vectors, picked, self.norms, self.norms.gather(1, picks))

    def to_means(self, shares: Tensor) -> Tensor:
        """See `Points`."""
        means = shares.mT @ self.vectors  # (classes, clusters, dim)
        bounds = self.norms[..., None] + means.square().sum(2)[:, None]
        squares: Tensor = bounds.baddbmm_(self.vectors, means.mT, alpha=-2)
        return squares.clamp_(min=0)

    def select(self, which: Tensor) -> Points:
        """See `Points`."""
        return VectorPoints(self.vectors[which])


def _squared_distances(x: Tensor, y: Tensor, x_norms: Tensor, y_norms: Tensor) -> Tensor:
    """Between the rows of each class, (classes, rows of x, rows of y); exactly 0 for equal rows."""
    bounds = x_norms[..., None] + y_norms[:, None]
    squares = torch.baddbmm(bounds, x, y.mT, alpha=-2)
    close = squares <= bounds.mul_(CLOSE[torch.float64][0])
    for group, row, column in _split(close.nonzero(), x):
        squares[group, row, column] = (x[group, row] - y[group, column]).square_().sum(1)
    return squares


def _split(close: Tensor, vectors: Tensor) -> Iterator[Tensor]:
    """The places (group, row, column) of close pairs, as many at a time as there is room for."""
    for part in close.split(max(1, _room(CHUNK, vectors) // vectors.shape[-1])):
        yield part.T


def _room(table: dict[str, int], tensor: Tensor) -> int:
    return table.get(tensor.device.type, table["cpu"])


@dataclass(frozen=True)
class PaddedClasses:
    """Classes of about one size; what is not `real` is padding."""

    classes: Tensor  # (classes,) their places among all classes
    rows: Tensor  # (classes, size) their samples
    real: Tensor  # (classes, size)
    points: Points

    def select(self, which: Tensor) -> PaddedClasses:
        """Those classes alone."""
        points = self.points.select(which)
        return PaddedClasses(self.classes[which], self.rows[which], self.real[which], points)


def padded_classes(
    vectors: Tensor, order: Tensor, sizes: Tensor, clusters: int
) -> Iterator[PaddedClasses]:
    """All classes in groups that fit in memory.

    order: the samples by class; sizes: how many each class has; clusters: the most that a class
    will be asked for.
    """
    dim = vectors.shape[1]
    starts = sizes.cumsum(0) - sizes
    ascending, by_size = sizes.cpu().sort(stable=True)
    begin = 0
    while begin < len(ascending):
        longest = int(GROWTH * int(ascending[begin]))
        end = int(torch.searchsorted(ascending, longest, right=True))
        size = int(ascending[end - 1])
        as_table = size <= min(TABLE, 2 * dim)
        numbers = size * max(size if as_table else dim, 4 * clusters)
        end = min(end, begin + max(1, _room(GROUP, vectors) // numbers))
        size = int(ascending[end - 1])
        classes = by_size[begin:end].to(vectors.device)
        places = torch.arange(size, device=vectors.device)
        real = places < sizes[classes, None]
        rows = order[starts[classes, None] + torch.where(real, places, 0)]
        if as_table:
            yield PaddedClasses(classes, rows, real, TablePoints(_table(vectors, rows, real)))
        else:
            yield PaddedClasses(classes, rows, real, VectorPoints(_centered(vectors, rows, real)))
        begin = end


def _block(vectors: Tensor, rows: Tensor, dtype: torch.dtype = torch.float64) -> Tensor:
    """(*rows, dim); index_select is several times faster than vectors[rows]."""
    block = vectors.index_select(0, rows.flatten()).to(dtype)
    return block.view(*rows.shape, vectors.shape[1])


def _table(vectors: Tensor, rows: Tensor, real: Tensor) -> Tensor:
    """Squared distances (classes, size, size), exactly 0 for equal rows.

    In float32 where that is faster, fit for it and precise enough, else in float64.
    """
    precise = vectors.is_cuda or torch.get_float32_matmul_precision() != "highest"
    if precise or vectors.dtype == torch.float64:
        return _precise_table(vectors, rows, real)
    squares, close = _by_products(vectors, rows, real, torch.float32)
    again = close.flatten(1).any(1)
    if again.any():
        squares[again] = _precise_table(vectors, rows[again], real[again])
    return squares


def _precise_table(vectors: Tensor, rows: Tensor, real: Tensor) -> Tensor:
    squares, close = _by_products(vectors, rows, real, torch.float64)
    for group, row, column in _split(close.nonzero(), vectors):
        apart = _block(vectors, rows[group, row]).sub_(_block(vectors, rows[group, column]))
        squares[group, row, column] = apart.square_().sum(1)
    return squares


def _by_products(
    vectors: Tensor, rows: Tensor, real: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """|x|^2 + |y|^2 - 2 x.y, and for which pairs that has lost its digits."""
    size = rows.shape[1]
    squares = vectors.new_empty(len(rows), size, size, dtype=torch.float64)
    step = max(1, _room(CHUNK, vectors) // (size * vectors.shape[1]))
    for begin in range(0, len(rows), step):
        block = _block(vectors, rows[begin : begin + step], dtype)
        squares[begin : begin + step] = block @ block.mT
    norms = squares.diagonal(dim1=1, dim2=2)
    bounds = norms[..., None] + norms[:, None]
    torch.sub(bounds, squares, alpha=2, out=squares)
    share, least = CLOSE[dtype]
    # not "<=": NaN, by overflow, is close as well
    close = ~(squares > bounds.mul_(share).clamp_(min=least)) & real[:, None] & real[..., None]
    close.diagonal(dim1=1, dim2=2).fill_(False)
    squares.diagonal(dim1=1, dim2=2).zero_()
    return squares.clamp_(min=0), close


def _centered(vectors: Tensor, rows: Tensor, real: Tensor) -> Tensor:
    """(classes, size, dim) around a middle, far from which products lose digits; padding is 0."""
    block = _block(vectors, rows)
    block.sub_(block.mean(1, keepdim=True))
    block[~real] = 0
    return block
