"""Greedy medoids: facility location whose score is raised by what a clustering gets wrong.

With near_p the distance of sample p to its nearest medoid so far, each step adds the candidate i of
the largest score, ties by the first index:

    score_i = -sum_p min(near_p, D_pi) + w (1 - NMI_i)

It takes the samples T_i = {p: D_pi < near_p}. For classes c, clusters k and f(n) = n log n,

    joint_i    = sum_c f(|T_i & c|) + sum_kc f(|k & c - T_i|)
    clusters_i = f(|T_i|) + sum_k f(|k - T_i|),    classes = sum_c f(n_c)
    NMI_i      = 2 (f(N) + joint_i - clusters_i - classes) / (2 f(N) - clusters_i - classes)

A new medoid changes near_p and the cluster of the samples only that it takes, some N log K of
them in all K steps. So costs and counts are kept, and a step adds what these samples change:
O(N^2 log K) operations, where counting again in each step takes O(N^2 K). Sums are of whole
numbers (fixed point), exact in any order: equal candidates stay equal, and devices agree.

The steps wait for each other. `_kernels/greedy_medoids.py` takes them on a GPU.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kinspace._core.tensor_ops import fixed_point_n_log_n
from kinspace._kernels import accelerated

__all__ = ["greedy_medoids"]

CHUNK = 512  # samples that move at a time: bounds the memory of the first steps


@torch.compiler.disable  # type: ignore[untyped-decorator]  # a choice waits for the one before
@accelerated
@torch.no_grad()
def greedy_medoids(
    distances: Tensor, classes: Tensor, *, margin_weight: float | Tensor
) -> tuple[Tensor, Tensor]:
    """The medoid each sample ends with, of as many as there are classes, and their NMI.

    distances: (samples, samples), finite; classes: a number from 0 to samples - 1 for each sample.

    >>> x = torch.tensor([0.0, 1.0, 9.0, 10.0])
    >>> greedy_medoids((x[:, None] - x).abs(), torch.tensor([0, 0, 2, 2]), margin_weight=1.0)
    (tensor([1, 1, 2, 2]), tensor(1.))
    """
    device = distances.device
    # many small steps that wait for each other: on a GPU launches would take longer than the work
    distances, classes, margin_weight = distances.cpu(), classes.cpu(), float(margin_weight)
    present, classes = classes.unique(return_inverse=True)
    count = len(present)
    search = _Search(distances, classes, count)
    free = torch.ones_like(classes, dtype=torch.bool)
    medoids = []
    for step in range(count):
        nmi = search.nmi()
        score = margin_weight * (1 - nmi) - search.cost.double() / search.scale
        best = int(score.masked_fill(~free, -math.inf).argmax())
        free[best] = False
        medoids.append(best)
        search.add(best, step)
    found = torch.tensor(medoids)[search.cluster]
    return found.to(device), nmi[best].to(device, distances.dtype)


class _Counts:
    """Counts (rows, candidates) and for each candidate the sum of f(count) over the rows."""

    def __init__(self, counts: Tensor, f: Tensor) -> None:
        self.counts, self.f = counts, f
        self.total = self._f(counts).sum(0)

    def add(self, rows: Tensor, change: Tensor) -> None:
        """Add to these rows, of which one may be named several times."""
        rows, places = rows.unique(return_inverse=True)
        old = self.counts[rows]
        new = old.index_add(0, places, change)
        self.counts[rows] = new
        self.total += (self._f(new) - self._f(old)).sum(0)

    def _f(self, counts: Tensor) -> Tensor:
        return self.f.index_select(0, counts.flatten()).view_as(counts)


class _Search:
    """What is known of all candidates before the next medoid is chosen."""

    def __init__(self, distances: Tensor, classes: Tensor, count: int) -> None:
        size = len(classes)
        f = fixed_point_n_log_n(size)
        self.distances, self.classes = distances, classes  # (samples, candidates); (samples,)
        # a power of 2 with which N distances add up to less than 2^62
        exponent = int(torch.frexp(distances.max().double()).exponent)
        self.scale = 2.0 ** min(62 - size.bit_length() - exponent, 1000)
        # no medoid yet: every candidate takes every sample
        self.near = distances.new_full((size,), math.inf)
        self.cluster = torch.zeros_like(classes)
        self.cell = torch.full_like(classes, count)  # the row of `joint` of its cluster and class
        costs = [self._fixed(rows).sum(0) for rows in distances.split(CHUNK)]
        self.cost = torch.stack(costs).sum(0)
        sizes = classes.bincount(minlength=count).int()
        joint = sizes.new_zeros(count + size, size)  # |T_i & c|, then |k & c - T_i|
        joint[:count] = sizes[:, None]
        self.joint = _Counts(joint, f)
        clusters = sizes.new_zeros(1 + count, size)  # |T_i|, then |k - T_i|
        clusters[0] = size
        self.clusters = _Counts(clusters, f)
        self.whole, self.truth = f[-1], f[sizes].sum()

    def nmi(self) -> Tensor:
        """Of the clusters that each candidate would lead to; 1 if both partitions are trivial."""
        information = self.whole + self.joint.total - self.clusters.total - self.truth
        entropies = 2 * self.whole - self.clusters.total - self.truth
        found = 2 * information.double() / entropies.clamp(min=1)
        return found.masked_fill(entropies == 0, 1.0)

    def add(self, medoid: int, step: int) -> None:
        """Give the medoid its samples, and every candidate what changes by that."""
        row = self.distances[:, medoid]
        moved = (row < self.near).nonzero()[:, 0]
        cells = self._new_cells(moved)
        for part, new in zip(moved.split(CHUNK), cells.split(CHUNK), strict=True):
            distances = self.distances[part]  # (moved, candidates)
            near, nearer = self.near[part, None], row[part, None]
            cost = self._fixed(distances.minimum(nearer)) - self._fixed(distances.minimum(near))
            self.cost = self.cost + cost.sum(0)
            # a sample in T_i counts there, any other in its cluster; kept implies taken
            kept, taken = (distances < nearer).int(), (distances < near).int()
            change = torch.cat((kept - taken, taken - 1, 1 - kept))
            self.joint.add(torch.cat((self.classes[part], self.cell[part], new)), change)
            first = torch.zeros_like(part)
            self.clusters.add(torch.cat((first, 1 + self.cluster[part], first + 1 + step)), change)
        self.near[moved] = row[moved]
        self.cluster[moved] = step
        self.cell[moved] = cells

    def _new_cells(self, moved: Tensor) -> Tensor:
        """For each moved sample the row of its class in the new cluster: rows of no other cell."""
        stays = torch.ones_like(self.classes, dtype=torch.bool).index_fill(0, moved, False)
        used = torch.zeros_like(self.joint.counts[:, 0], dtype=torch.bool)
        used[: len(self.clusters.counts) - 1] = True  # the rows of the classes
        used[self.cell[stays]] = True
        return (~used).nonzero()[:, 0][self.classes[moved].unique(return_inverse=True)[1]]

    def _fixed(self, distances: Tensor) -> Tensor:
        return (distances.double() * self.scale).long()
