"""Clustering loss: the true clustering must score above every other by the margin of its NMI.

    L = max(0, max_S [ F(X, S) + w (1 - NMI(g(S), y)) ] - F~(X, y))
    F(X, S)  = -sum_i min_{j in S} ||x_i - x_j||
    F~(X, y) = sum_classes max_{j in class} -sum_{i in class} ||x_i - x_j||

S are as many medoids as the batch has classes, g(S) assigns each sample to its nearest medoid. The
best S is found greedily, one medoid at a time; it is a constant of the gradient. NMI = 2I/(H + H').

Oh Song et al., Deep metric learning via facility location, CVPR 2017, Eq. 4-7 and algorithm 1.
Their algorithm 2, a local search by swaps after the greedy one, is left out: it is as long again
and moves the maximum little. Unlike all other losses here
this one takes one step after another, a class each, with products of (N, N) tables: up to
classes x N^3 operations, for which a GPU helps little. It is here for comparison.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from kinspace import checks
from kinspace.distances import euclidean_distances, paired_distances
from kinspace.numerics import full_precision

__all__ = ["Clustering", "clustering_loss"]


@full_precision
def clustering_loss(embeddings: Tensor, labels: Tensor, *, margin_weight: float = 1.0) -> Tensor:
    """Clustering loss (module docstring).

    Medoids 0 and 2 recover the classes; the margin prefers two medoids in one class:
    -17 less -2, and 1 less its NMI on top, never pays, so the loss is 0.

    >>> x = torch.tensor([[0.0], [1.0], [9.0], [10.0]])
    >>> clustering_loss(x, torch.tensor([0, 0, 1, 1]))
    tensor(0.)
    """
    labels = checks.with_labels(embeddings, labels)
    checks.finite("margin_weight", margin_weight, at_least=0)
    groups = labels.unique(return_inverse=True)[1]
    distances = euclidean_distances(embeddings.detach())
    medoids, nmi = _best_medoids(distances, groups, margin_weight)
    found = medoids[distances[:, medoids].argmin(1)]
    true = _class_medoids(distances, groups)[groups]
    facility = paired_distances(embeddings, embeddings.index_select(0, found)).sum()
    oracle = paired_distances(embeddings, embeddings.index_select(0, true)).sum()
    return (oracle - facility + margin_weight * (1 - nmi)).relu()


def _class_medoids(distances: Tensor, groups: Tensor) -> Tensor:
    """For each class its sample with the smallest summed distance to the others."""
    same = groups[:, None] == groups
    costs = distances.masked_fill(~same, 0).sum(0)
    member = torch.arange(int(groups.max()) + 1, device=groups.device)[:, None] == groups
    return torch.where(member, costs, math.inf).argmin(1)


@torch.no_grad()
def _best_medoids(distances: Tensor, groups: Tensor, margin_weight: float) -> tuple[Tensor, Tensor]:
    """Greedy medoids by facility location plus the margin, and the NMI they end with.

    With f(n) = n log n and counts n_kc of cluster k and class c, the mutual information is
    (sum f(n_kc) - sum f(n_k) - sum f(n_c) + f(N)) / N: a candidate changes only the counts of the
    samples it takes over, and these are sums over one (sample, candidate) mask.
    """
    size, classes = len(distances), int(groups.max()) + 1
    onehot = torch.nn.functional.one_hot(groups, classes).to(distances.dtype)
    class_part = _entropy_sum(onehot.sum(0), 0)
    nearest = distances.new_full((size,), math.inf)
    cluster = groups.new_full((size,), -1)
    medoids: list[Tensor] = []
    nmi = distances.new_zeros(())
    free = torch.ones(size, dtype=torch.bool, device=distances.device)
    for step in range(classes):
        taken = distances < nearest[:, None]  # (samples, candidates)
        facility = -torch.minimum(distances, nearest[:, None]).sum(0)
        moved = taken.to(distances.dtype)
        joint_part = _entropy_sum(onehot.T @ moved, 0)
        cluster_part = _entropy_sum(moved.sum(0), None)
        if step:
            old = torch.nn.functional.one_hot(cluster, step).to(distances.dtype)
            cluster_part = cluster_part + _left(old, moved)
            pair = (cluster * classes + groups).unique(return_inverse=True)[1]
            pairs = torch.nn.functional.one_hot(pair, int(pair.max()) + 1).to(distances.dtype)
            joint_part = joint_part + _left(pairs, moved)
        candidate_nmi = _nmi(joint_part, cluster_part, class_part, size)
        score = facility + margin_weight * (1 - candidate_nmi)
        best = score.masked_fill(~free, -math.inf).argmax()
        free[best] = False
        medoids.append(best)
        nmi = candidate_nmi[best]
        cluster = torch.where(taken[:, best], step, cluster)
        nearest = torch.minimum(nearest, distances[:, best])
    return torch.stack(medoids), nmi


def _left(members: Tensor, moved: Tensor) -> Tensor:
    """sum f(count) over the groups after each candidate took its samples away."""
    return _entropy_sum(members.sum(0)[:, None] - members.T @ moved, 0)


def _entropy_sum(counts: Tensor, dim: int | None) -> Tensor:
    """sum n log n, with 0 log 0 = 0."""
    values: Tensor = torch.special.xlogy(counts, counts)
    return values if dim is None else values.sum(dim)


def _nmi(joint: Tensor, clusters: Tensor, classes: Tensor, size: int) -> Tensor:
    whole = size * math.log(size)
    information = joint - clusters - classes + whole
    entropies = 2 * whole - clusters - classes
    # both partitions trivial: 1; the threshold is rounding in sums of n log n
    trivial = entropies <= 1e-6 * max(whole, 1)
    return torch.where(trivial, 1, 2 * information / entropies.masked_fill(trivial, 1))


class Clustering(nn.Module):
    """`clustering_loss` as a module.

    >>> Clustering()
    Clustering(margin_weight=1.0)
    """

    def __init__(self, *, margin_weight: float = 1.0) -> None:
        super().__init__()
        self.margin_weight = checks.finite("margin_weight", margin_weight, at_least=0)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return clustering_loss(embeddings, labels, margin_weight=self.margin_weight)

    def extra_repr(self) -> str:
        return f"margin_weight={self.margin_weight}"
