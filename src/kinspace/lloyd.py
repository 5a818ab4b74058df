"""K-means within each class, for many classes at once: the engine of `class_kmeans`.

    minimize   sum over classes, clusters k of the class, samples x of k:  ||x - mean of k||^2

Seeds by greedy K-means++ (Arthur & Vassilvitskii, 2007: each next seed is drawn in proportion to
the squared distance to the seeds so far, the best of a few draws is kept), then Lloyd's steps until
a class gains next to nothing. A sample is only ever measured against the clusters of its own class.

Classes of about one size form a group, padded to the largest of them, and a step is one batched
matrix product for the whole group. A class of few samples is first turned into the table D of its
squared distances, (size, size). With shares S (size, clusters), 1 / count for the members of a
cluster and 0 for the rest, the squared distances to all means are then

    D S - 1/2 diag(S' D S)

and no step depends on the dimension any more. Large classes keep their vectors. Everything is in
float64, where one seed gives the same clusters on a CPU and on a GPU but for exact ties.

A class gets at most as many clusters as it has distinct samples. A cluster that loses all its
samples takes the sample of its class that is farthest from its own mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

__all__ = [
    "Group",
    "Points",
    "class_groups",
    "kmeans",
    "lloyd",
    "members_of",
    "own",
    "trials",
]

TABLE = 512  # samples up to which a class is turned into its table of distances
CLOSE = 1e-9  # of |x|^2 + |y|^2: below it the product form keeps less than seven digits
GROWTH = 1.25  # the largest class of a group has at most so many times the samples of the smallest
FAR = 1e300  # before the first seed all samples are as far
TOLERANCE = 1e-4  # of its inertia: a class that gains less by a step is done
GRAIN = 2.0**40  # weights of a draw as integers, whose sums are exact in any order
# Numbers in the tables of one group, and in the vectors that are turned into tables at a time.
GROUP = {"cpu": 2**21, "cuda": 2**27}
CHUNK = {"cpu": 2**19, "cuda": 2**26}


class Points(Protocol):
    """The samples of a group of classes, known by their squared distances."""

    def to_samples(self, picks: Tensor) -> Tensor:
        """From all samples to the picked ones (classes, picks): (classes, size, picks)."""

    def to_means(self, shares: Tensor) -> Tensor:
        """From all samples to the means (classes, size, clusters): (classes, size, clusters)."""


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


def _squared_distances(x: Tensor, y: Tensor, x_norms: Tensor, y_norms: Tensor) -> Tensor:
    """Between the rows of each class, (classes, rows of x, rows of y); exactly 0 for equal rows."""
    bounds = x_norms[..., None] + y_norms[:, None]
    squares = torch.baddbmm(bounds, x, y.mT, alpha=-2)
    for group, row, column in _split((squares < bounds.mul_(CLOSE)).nonzero(), x):
        squares[group, row, column] = (x[group, row] - y[group, column]).square_().sum(1)
    return squares


def _split(close: Tensor, vectors: Tensor) -> Iterator[Tensor]:
    """The places (group, row, column) of close pairs, as many at a time as there is room for."""
    for part in close.split(max(1, _room(CHUNK, vectors) // vectors.shape[-1])):
        yield part.T


def _room(table: dict[str, int], tensor: Tensor) -> int:
    return table.get(tensor.device.type, table["cpu"])


@dataclass(frozen=True)
class Group:
    """Classes of about one size; what is not `real` is padding."""

    classes: Tensor  # (classes,) their places among all classes
    rows: Tensor  # (classes, size) their samples
    real: Tensor  # (classes, size)
    points: Points


def class_groups(vectors: Tensor, order: Tensor, sizes: Tensor, clusters: int) -> Iterator[Group]:
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
            yield Group(classes, rows, real, _table(vectors, rows, real))
        else:
            yield Group(classes, rows, real, VectorPoints(_centered(vectors, rows, real)))
        begin = end


def _block(vectors: Tensor, rows: Tensor) -> Tensor:
    """(..., dim) in float64; index_select is several times faster than vectors[rows]."""
    return vectors.index_select(0, rows.flatten()).double().view(*rows.shape, vectors.shape[1])


def _table(vectors: Tensor, rows: Tensor, real: Tensor) -> Points:
    size = rows.shape[1]
    squares = vectors.new_empty(len(rows), size, size, dtype=torch.float64)
    step = max(1, _room(CHUNK, vectors) // (size * vectors.shape[1]))
    for begin in range(0, len(rows), step):
        block = _block(vectors, rows[begin : begin + step])
        torch.bmm(block, block.mT, out=squares[begin : begin + step])
    norms = squares.diagonal(dim1=1, dim2=2)
    bounds = norms[..., None] + norms[:, None]
    torch.sub(bounds, squares, alpha=2, out=squares)
    close = (squares < bounds.mul_(CLOSE)) & real[:, None] & real[..., None]
    close.diagonal(dim1=1, dim2=2).fill_(False)
    for group, row, column in _split(close.nonzero(), vectors):
        apart = _block(vectors, rows[group, row]).sub_(_block(vectors, rows[group, column]))
        squares[group, row, column] = apart.square_().sum(1)
    return TablePoints(squares.clamp_(min=0))


def _centered(vectors: Tensor, rows: Tensor, real: Tensor) -> Tensor:
    """(classes, size, dim) around a middle, far from which products lose digits; padding is 0."""
    block = _block(vectors, rows)
    block.sub_(block.mean(1, keepdim=True))
    block[~real] = 0
    return block


def trials(clusters: int) -> int:
    """How many draws each next seed is the best of; as many as scikit-learn takes."""
    return 2 + int(math.log(clusters))


def kmeans(group: Group, draws: Tensor, iterations: int) -> tuple[Tensor, Tensor]:
    """Clusters of the samples within their class, (classes, size), the best of the restarts.

    draws: numbers in [0, 1), (restarts, classes, clusters, trials). Returns with the clusters the
    squared distances to all their means, (classes, size, clusters), infinite for an empty cluster.
    """
    count = draws.shape[2]
    lowest = draws.new_full((len(group.rows),), math.inf)
    best = torch.zeros_like(group.rows)
    best_squares = draws.new_zeros(*best.shape, count)
    for restart in draws:
        clusters = torch.zeros_like(group.rows)
        closest = group.real.double() * FAR
        for k in range(count):
            clusters, closest = grow(group, clusters, closest, k, restart[:, k])
        clusters, squares = lloyd(group, clusters, count, iterations)
        inertia = own(squares, clusters).mul_(group.real).sum(1)  # (classes,)
        better = inertia < lowest
        lowest = torch.where(better, inertia, lowest)
        best = torch.where(better[:, None], clusters, best)
        best_squares = torch.where(better[:, None, None], squares, best_squares)
    return best, best_squares


def grow(
    group: Group, clusters: Tensor, closest: Tensor, k: int, draws: Tensor
) -> tuple[Tensor, Tensor]:
    """Give each class a cluster k around a sample drawn as by K-means++.

    closest: the squared distance of each sample to its cluster so far, 0 for padding. A class with
    no sample off its centers gets none. Returns the new clusters and closest. draws: (classes,
    trials).
    """
    weights = closest / closest.amax(1, keepdim=True).clamp_(min=torch.finfo(closest.dtype).tiny)
    sums = weights.mul_(GRAIN).ceil_().long().cumsum(1)
    targets = (draws * sums[:, -1:]).long()
    picks = torch.searchsorted(sums, targets, right=True).clamp_(max=closest.shape[1] - 1)
    reached = torch.minimum(group.points.to_samples(picks), closest[..., None])
    best = reached.sum(1).argmin(1)  # (classes,)
    reached = reached.gather(2, best[:, None, None].expand(-1, reached.shape[1], 1))[..., 0]
    return torch.where(reached < closest, k, clusters), reached


def lloyd(group: Group, clusters: Tensor, count: int, iterations: int) -> tuple[Tensor, Tensor]:
    """Move samples to the nearest mean; a cluster that starts empty stays empty.

    A class is left as it is after a step that gained less than TOLERANCE. Returns as `kmeans`.
    """
    members = members_of(group, clusters, count)
    living = members.any(1)  # (classes, count)
    before = torch.full((len(clusters),), math.inf, device=clusters.device)
    for step in range(iterations + 1):
        shares = members / members.sum(1, keepdim=True).clamp_(min=1).double()
        squares = group.points.to_means(shares).masked_fill_(~living[:, None], math.inf)
        inertia = own(squares, clusters).mul_(group.real).sum(1)  # (classes,)
        moving = inertia < before * (1 - TOLERANCE)
        if step == iterations or not moving.any():
            break
        before = inertia
        nearest = squares.argmin(2)
        empty = living & ~members_of(group, nearest, count).any(1)
        if empty.any():
            _repair(group, nearest, squares, empty)
        clusters = torch.where(moving[:, None], nearest, clusters)
        members = members_of(group, clusters, count)
    return clusters, squares


def members_of(group: Group, clusters: Tensor, count: int) -> Tensor:
    """Which samples are in which cluster: a mask (classes, size, count)."""
    slots = torch.arange(count, device=clusters.device)
    return (clusters[..., None] == slots) & group.real[..., None]


def _repair(group: Group, clusters: Tensor, squares: Tensor, empty: Tensor) -> None:
    """Move the farthest sample of the class to each empty cluster, in place."""
    distances = own(squares, clusters)
    for k in range(empty.shape[1]):
        needy = empty[:, k].nonzero()[:, 0]
        if not len(needy):
            continue
        counts = members_of(group, clusters, empty.shape[1])[needy].sum(1)
        movable = group.real[needy] & (counts.gather(1, clusters[needy]) > 1)
        farthest = torch.where(movable, distances[needy], -1.0).argmax(1)
        clusters[needy, farthest] = k
        distances[needy, farthest] = 0


def own(squares: Tensor, clusters: Tensor) -> Tensor:
    """Of the squared distances to all means those to a sample's own one, (classes, size)."""
    return squares.gather(2, clusters[..., None])[..., 0]
