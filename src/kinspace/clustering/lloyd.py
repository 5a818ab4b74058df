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

and no step depends on the dimension any more. Large classes keep their vectors. All sums are in
float64, and draws are made from integers: but for near ties, one seed gives the same clusters on a
CPU and on a GPU.

A class gets at most as many clusters as it has distinct samples. A cluster that loses all its
samples takes the sample of its class that is farthest from its own mean.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kinspace.clustering.padded_classes import PaddedClasses

__all__ = ["kmeans", "lloyd", "members_of", "own", "trials"]

FAR = 1e300  # before the first seed all samples are as far
TOLERANCE = 1e-4  # of its inertia: a class that gains less by a step is done
GRAIN = 2.0**40  # weights of a draw as integers, whose sums are exact in any order


def trials(clusters: int) -> int:
    """How many draws each next seed is the best of; as many as scikit-learn takes."""
    return 2 + int(math.log(clusters))


def kmeans(group: PaddedClasses, draws: Tensor, iterations: int) -> tuple[Tensor, Tensor]:
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
            # the first of all is any sample: the best of several would be the middle of the class
            picks = restart[:, k] if k else restart[:, k, :1]
            clusters, closest = grow(group, clusters, closest, k, picks)
        clusters, squares = lloyd(group, clusters, count, iterations)
        inertia = own(squares, clusters).mul_(group.real).sum(1)  # (classes,)
        better = inertia < lowest
        lowest = torch.where(better, inertia, lowest)
        best = torch.where(better[:, None], clusters, best)
        best_squares = torch.where(better[:, None, None], squares, best_squares)
    return best, best_squares


def grow(
    group: PaddedClasses, clusters: Tensor, closest: Tensor, k: int, draws: Tensor
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


def lloyd(
    group: PaddedClasses, clusters: Tensor, count: int, iterations: int
) -> tuple[Tensor, Tensor]:
    """Move samples to the nearest mean; a cluster that starts empty stays empty.

    A class is left as it is after a step that gained less than TOLERANCE. Returns as `kmeans`.
    """
    members = members_of(group, clusters, count)
    counts = members.sum(1)  # (classes, count)
    living = counts > 0
    before = torch.full((len(clusters),), math.inf, device=clusters.device)
    for step in range(iterations + 1):
        squares = group.points.to_means(members / counts.clamp_(min=1).double()[:, None])
        squares.masked_fill_(~living[:, None], math.inf)
        inertia = own(squares, clusters).mul_(group.real).sum(1)  # (classes,)
        moving = inertia < before * (1 - TOLERANCE)
        number = int(moving.sum())
        if step == iterations or number == 0:
            break
        if 2 * number <= len(moving):  # go on with those alone
            left = iterations - step
            clusters[moving], squares[moving] = lloyd(
                group.select(moving), clusters[moving], count, left
            )
            break
        before = inertia
        nearest = torch.where(moving[:, None], squares.argmin(2), clusters)
        members = members_of(group, nearest, count)
        counts = members.sum(1)
        empty = living & (counts == 0)
        if empty.any():
            _repair(group, nearest, squares, empty)
            members = members_of(group, nearest, count)
            counts = members.sum(1)
        clusters = nearest
    return clusters, squares


def members_of(group: PaddedClasses, clusters: Tensor, count: int) -> Tensor:
    """Which samples are in which cluster: a mask (classes, size, count)."""
    slots = torch.arange(count, device=clusters.device)
    return (clusters[..., None] == slots) & group.real[..., None]


def _repair(group: PaddedClasses, clusters: Tensor, squares: Tensor, empty: Tensor) -> None:
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
