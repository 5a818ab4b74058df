"""K-means of all vectors into thousands of clusters: in blocks, on a CPU or a GPU.

    minimize   sum over samples x:  ||x - mean of its cluster||^2

The seeds are those of greedy K-means++ (Arthur and Vassilvitskii, 2007): candidates are drawn in
proportion to the squared distance to the seeds so far, and the best of a few is kept. Here each
round adds one seed for every 64 there are, so that thousands of seeds cost as much as a few steps.

Then follow Lloyd's steps. A step compares samples whose own center has moved with all centers, and
the other samples only with the centers that have moved. The clusters are the same as with all
comparisons, and after two or three steps little is left to compare.

`kinspace.clustering.kmeans` runs many small K-means, one in every class.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from kinspace._core import checks
from kinspace.clustering.kmeans import cluster_means

__all__ = ["Clustering", "kmeans"]

BLOCK = {"cpu": 2**22, "cuda": 2**28}  # numbers in a block of distances
GROWTH = 64  # a round adds one seed for so many that there are
TRIALS = 6  # candidates for each seed
TOLERANCE = 1e-4  # share of the inertia: a step that gains less is the last


@dataclass(frozen=True, eq=False)
class Clustering:
    """The clusters of K-means."""

    clusters: Tensor  # (samples,)
    centers: Tensor  # (clusters, dim)
    inertia: float  # sum of the squared distances to the own center


@torch.no_grad()
def kmeans(vectors: Tensor, count: int, *, seed: int = 0, iterations: int = 100) -> Clustering:
    """K-means of all vectors, in float32 or float64, in blocks, on their device.

    A cluster that loses all its samples takes the sample farthest from its center.

    >>> found = kmeans(torch.tensor([[0.0], [1.0], [8.0], [9.0]]), 2)
    >>> found.clusters[0] == found.clusters[1] != found.clusters[2] == found.clusters[3]
    tensor(True)
    >>> found.inertia
    1.0
    """
    checks.vectors("vectors", vectors)
    count = min(checks.integer("count", count, at_least=1), len(vectors))
    checks.integer("iterations", iterations, at_least=1)
    middle = vectors.mean(0, dtype=torch.float64).to(vectors.dtype)
    points = vectors - middle  # products lose digits far from 0
    norms = torch.linalg.vector_norm(points, dim=1, dtype=torch.float64).square_()
    with torch.autocast(vectors.device.type, enabled=False):
        centers = points[_seeds(points, norms, count, seed)]
        clusters, squares = _nearest(points, norms, centers)
        before = math.inf
        for step in range(iterations):
            _fill_empty(clusters, squares, count)
            inertia = float(squares.sum())
            means = cluster_means(points, clusters, clusters.bincount(minlength=count))
            moved, centers = (means != centers).any(1), means
            if inertia >= before * (1 - TOLERANCE) or step == iterations - 1:
                break
            before = inertia
            _reassign(points, norms, centers, moved, (clusters, squares))
    inertia = float((points - centers[clusters]).double().square_().sum())
    return Clustering(clusters, centers + middle, inertia)


def _seeds(points: Tensor, norms: Tensor, count: int, seed: int) -> Tensor:
    """The rows of the seeds, by greedy K-means++ in rounds."""
    generator = torch.Generator().manual_seed(seed)  # on the CPU: the same for every device
    chosen = torch.randint(len(points), (1,), generator=generator).to(points.device)
    closest = torch.full_like(norms, math.inf)
    latest = chosen
    while len(chosen) < count:
        closest = torch.minimum(closest, _nearest(points, norms, points[latest])[1])
        closest[latest] = 0
        number = min(count - len(chosen), max(1, len(chosen) // GROWTH))
        drawn = min(number * TRIALS, len(points) - len(chosen))
        candidates = _draw(closest, chosen, drawn, generator)
        gains = _gains(points, closest - norms, points[candidates])
        latest = candidates[gains.topk(number).indices]
        chosen = torch.cat([chosen, latest])
    return chosen


def _gains(points: Tensor, offsets: Tensor, candidates: Tensor) -> Tensor:
    """By how much each candidate, alone, would lower the sum of squared distances."""
    norms = candidates.square().sum(1)
    gains = torch.zeros(len(candidates), dtype=torch.float64, device=points.device)
    for part in _parts(points, len(candidates)):
        products = torch.addmm(norms, points[part], candidates.T, beta=-1, alpha=2)
        gained = products.add_(offsets[part, None].to(products.dtype)).clamp_(min=0)
        gains += gained.sum(0, dtype=torch.float64)
    return gains


def _draw(weights: Tensor, taken: Tensor, number: int, generator: torch.Generator) -> Tensor:
    """A sample of rows without replacement, in proportion to the weights.

    The largest of log(u) / w, u uniform, are such a sample (Efraimidis and Spirakis, 2006). If too
    few weights are positive, other rows that are not taken fill it up.
    """
    uniform = torch.rand(len(weights), generator=generator, dtype=torch.float64)
    keys = uniform.clamp_(min=1e-300).log_().to(weights.device) / weights
    keys.masked_fill_(weights == 0, -1e300)[taken] = -math.inf
    return keys.topk(number).indices


def _nearest(points: Tensor, norms: Tensor, centers: Tensor) -> tuple[Tensor, Tensor]:
    """The nearest center of each point and its squared distance, float64."""
    half = centers.square().sum(1).div_(2)
    best = torch.empty_like(norms)
    clusters = torch.empty(len(points), dtype=torch.int64, device=points.device)
    for part in _parts(points, len(centers)):
        closeness, clusters[part] = torch.addmm(half, points[part], centers.T, beta=-1).max(1)
        best[part] = closeness
    return clusters, (norms - 2 * best).clamp_(min=0)


def _reassign(
    points: Tensor, norms: Tensor, centers: Tensor, moved: Tensor, found: tuple[Tensor, Tensor]
) -> None:
    """Bring the clusters of the points and their squared distances up to date, in place."""
    clusters, squares = found
    behind = moved[clusters]
    rows = behind.nonzero()[:, 0]
    if len(rows):
        clusters[rows], squares[rows] = _nearest(points[rows], norms[rows], centers)
    rows, places = (~behind).nonzero()[:, 0], moved.nonzero()[:, 0]
    if len(rows) and len(places):
        nearest, reached = _nearest(points[rows], norms[rows], centers[places])
        better = reached < squares[rows]
        clusters[rows[better]] = places[nearest[better]]
        squares[rows[better]] = reached[better]


def _parts(points: Tensor, columns: int) -> Iterator[slice]:
    step = max(1, BLOCK.get(points.device.type, BLOCK["cpu"]) // columns)
    return (slice(at, at + step) for at in range(0, len(points), step))


def _fill_empty(clusters: Tensor, squares: Tensor, count: int) -> None:
    """Give each empty cluster the farthest sample of a cluster of several, in place."""
    sizes = clusters.bincount(minlength=count)
    empty = (sizes == 0).nonzero()[:, 0].tolist()
    if not empty:
        return
    left, owners = sizes.tolist(), clusters.tolist()
    for place in squares.argsort(descending=True, stable=True).tolist():
        if left[owners[place]] > 1:
            left[owners[place]] -= 1
            clusters[place] = empty.pop()
            squares[place] = 0
            if not empty:
                return
