"""K-means in every class: `class_kmeans`, many classes at once.

Each class gets its own clusters, and a sample is only ever measured against those of its class: no
table of all samples by all clusters is made.

    minimize   sum over classes, clusters k of the class, samples x of k:  ||x - mean of k||^2

Seeds by greedy K-means++ (Arthur & Vassilvitskii, 2007: each next seed is drawn in proportion to
the squared distance to the seeds so far, the best of a few draws is kept), then Lloyd's steps until
a class gains next to nothing.

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

How many clusters a class has ("auto") is decided by its own samples, by the evidence for two modes
instead of one.

K-means always splits; the question is whether there is a valley between two of its clusters. For
clusters a and b of a class, with means m and N = N_a + N_b samples, each sample gets a coordinate
on the way from b to a,

    t_i = ||x_i - m_b||^2 - ||x_i - m_a||^2     with x_i left out of the mean of its own cluster,

and the t are explained by one normal distribution or by two, each with its share of the samples and
one variance between them. The difference of their Bayesian information criteria, with the N - 2
degrees of freedom that two means leave, is

    evidence = (N - 2)/2 log(V / W) + N_a log(N_a / N) + N_b log(N_b / N) - log N

where V is the variance of all t and W that around the means of the two groups. The clusters are two
modes if it is above 0. The number of clusters of a class is the largest k up to the limit for which
all pairs of clusters found by K-means are. A cluster of one sample is an outlier and no mode: it is
dissolved before the test, and so a mode has at least two samples.

Why not the criterion of X-means, the likelihood of round clusters in all dimensions: it multiplies
every difference of the spread by the dimension. It splits a class that is longer one way than
another, as all real ones are, and misses real modes where there are fewer samples than dimensions.
Along one axis the shape of the rest does not count: the halves of a normal distribution have
V/W = 2.75, those of a uniform one 4, and the evidence for both is negative for any N. If x_i were
not left out, samples in more dimensions than there are samples would stand apart on the axis of any
two clusters.

Magnet (Rippel et al., 2016) leaves the number of clusters by class to future work. This criterion
is ours; compare G-means (Hamerly & Elkan, 2003), which tests along the same axis.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from kinspace._core import checks
from kinspace.clustering.padded_classes import PaddedClasses, padded_classes

__all__ = [
    "ClassClusters",
    "class_kmeans",
    "cluster_means",
    "cluster_numbers",
    "clusters_by_modes",
    "kmeans",
    "lloyd",
    "members_of",
    "mode_evidence",
    "own",
    "trials",
]

FAR = 1e300  # before the first seed all samples are as far
TOLERANCE = 1e-4  # of its inertia: a class that gains less by a step is done
GRAIN = 2.0**40  # weights of a draw as integers, whose sums are exact in any order
RESTARTS = 4  # at least: a bad local optimum at the right number of clusters hides the modes
PART = 256  # samples of a cluster up to which float32 sums keep six digits


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


def clusters_by_modes(
    group: PaddedClasses, draws: Tensor, iterations: int
) -> tuple[Tensor, Tensor]:
    """Clusters of the samples within their class, one for each mode; see `kmeans`."""
    best, best_squares = lloyd(group, torch.zeros_like(group.rows), draws.shape[2], 0)
    most = best.new_ones(len(best))  # modes found so far, (classes,)
    for count in range(2, 1 + min(draws.shape[2], group.rows.shape[1] // 2)):
        clusters, squares = kmeans(group, draws[:, :, :count], iterations)
        alone = members_of(group, clusters, count).sum(1) == 1  # (classes, count)
        clusters = squares.masked_fill_(alone[:, None], math.inf).argmin(2)
        clusters, squares = lloyd(group, clusters, count, iterations)
        members = members_of(group, clusters, count)
        modes = members.any(1).sum(1)
        better = (mode_evidence(members, squares, clusters) > 0).flatten(1).all(1) & (modes > most)
        most = torch.where(better, modes, most)
        best = torch.where(better[:, None], clusters, best)
        best_squares[..., :count] = torch.where(
            better[:, None, None], squares, best_squares[..., :count]
        )
    return best, best_squares


def mode_evidence(members: Tensor, squares: Tensor, clusters: Tensor) -> Tensor:
    """The evidence of the module docstring for all pairs of clusters, (classes, count, count).

    members: (classes, size, count) mask; squares: the distances of the samples to the means.
    Infinite for a cluster with itself and with an empty one, minus infinity with a single sample.

    Samples 0, 1 and 9, 10 have the means 0.5 and 9.5, and t = 90.25 - 1, 72.25 - 1 and the same
    with the other sign: V/W = 80.51, and the evidence is log 80.51 - 4 log 2 - log 4.

    >>> clusters = torch.tensor([[0, 0, 1, 1]])
    >>> means = torch.tensor([0.5, 9.5]).double()
    >>> squares = (torch.tensor([[0.0, 1.0, 9.0, 10.0]])[..., None] - means).square()
    >>> members = clusters[..., None] == torch.arange(2)
    >>> round(mode_evidence(members, squares, clusters)[0, 0, 1].item(), 4)
    0.2295
    """
    weights = members.double()
    counts = weights.sum(1)  # (classes, count)
    size = counts.gather(1, clusters)
    left_out = own(squares, clusters) * (size / (size - 1).clamp(min=1)).square()
    ahead = (squares - left_out[..., None]).nan_to_num(posinf=0, neginf=0)  # t_i towards its own
    sums = weights.mT @ ahead  # [a, b]: over the samples of a, against b
    squared_sums = weights.mT @ ahead.square()
    a, b = counts[:, :, None], counts[:, None, :]
    pooled = (a + b).clamp(min=1)
    means = sums / a.clamp(min=1)
    around = squared_sums - sums * means
    within = around + around.mT
    gap = means + means.mT  # seen from b, t has the other sign
    total = within + a * b / pooled * gap.square()
    evidence = (pooled - 2) / 2 * (total / within.maximum(total * 1e-15)).log()
    evidence += torch.xlogy(a, a / pooled) + torch.xlogy(b, b / pooled) - pooled.log()
    evidence = evidence.masked_fill((gap <= 0) | (torch.minimum(a, b) == 1), -math.inf)
    same = torch.eye(counts.shape[1], dtype=torch.bool, device=counts.device)
    return evidence.masked_fill((torch.minimum(a, b) == 0) | same, math.inf)


@dataclass(frozen=True)
class ClassClusters:
    """The clusters of all classes, numbered by class and then by their first sample."""

    clusters: Tensor  # (samples,) the cluster of each sample
    centers: Tensor  # (clusters, dim) their means
    cluster_labels: Tensor  # (clusters,) the class of each cluster
    inertia: float  # sum of the squared distances of the samples to their centers


@torch.no_grad()
def class_kmeans(
    embeddings: Tensor,
    labels: Tensor,
    clusters_per_class: int | Literal["auto"],
    *,
    max_clusters: int = 8,
    seed: int = 0,
    iterations: int = 50,
    restarts: int = 1,
) -> ClassClusters:
    """K-means++ and Lloyd's steps within each class, all classes at once (module docstring).

    clusters_per_class: as many for each class, or fewer where a class has fewer distinct samples;
    "auto" gives a class as many as it has modes, up to max_clusters (see the module docstring).
    iterations: Lloyd's steps at most; restarts: the best of so many, at least 4 for "auto".

    >>> x = torch.tensor([[0.0], [1.0], [8.0], [9.0], [5.0], [5.0]])
    >>> found = class_kmeans(x, torch.tensor([0, 0, 0, 0, 7, 7]), 2)
    >>> found.clusters, found.cluster_labels, found.inertia
    (tensor([0, 0, 1, 1, 2, 2]), tensor([0, 0, 7]), 1.0)
    """
    labels = checks.labels(embeddings, labels)
    most, restarts = cluster_numbers(clusters_per_class, max_clusters, iterations, restarts)
    vectors, scale = _scaled(embeddings.detach())
    ordered, order = labels.sort(stable=True)
    classes, sizes = ordered.unique_consecutive(return_counts=True)
    most = min(most, int(sizes.max()))
    # Drawn on the CPU and by class: the same for every device and for every division in groups.
    generator = torch.Generator().manual_seed(seed)
    shape = (restarts, len(classes), most, trials(most))
    draws = torch.rand(shape, generator=generator, dtype=torch.float64).to(vectors.device)
    find = clusters_by_modes if clusters_per_class == "auto" else kmeans
    within = torch.empty_like(order)  # each sample's cluster within its class
    inertia = 0.0
    with torch.autocast(vectors.device.type, enabled=False):  # it would make halves of float32
        for group in padded_classes(vectors, order, sizes, most):
            found, squares = find(group, draws[:, group.classes], iterations)
            within[group.rows[group.real]] = found[group.real]
            inertia += float(own(squares, found)[group.real].sum())
    clusters, cluster_labels = _numbered(within, order, classes, sizes, most)
    centers = cluster_means(vectors, clusters, clusters.bincount())
    if scale != 1:
        centers.mul_(scale)
    return ClassClusters(clusters, centers, cluster_labels, inertia * scale * scale)


def cluster_numbers(
    clusters_per_class: int | str, max_clusters: int, iterations: int, restarts: int
) -> tuple[int, int]:
    """Check these options; the clusters to try at most, and the restarts to make."""
    checks.integer("iterations", iterations, at_least=1)
    checks.integer("restarts", restarts, at_least=1)
    if clusters_per_class == "auto":
        return checks.integer("max_clusters", max_clusters, at_least=1), max(restarts, RESTARTS)
    if isinstance(clusters_per_class, str):
        raise ValueError(
            f"clusters_per_class: expected a whole number or 'auto', got {clusters_per_class!r}"
        )
    return checks.integer("clusters_per_class", clusters_per_class, at_least=1), restarts


def _scaled(embeddings: Tensor) -> tuple[Tensor, float]:
    """Finite numbers in float32 or float64 whose squares are in its range, and their scale."""
    if embeddings.dtype in (torch.float16, torch.bfloat16):
        embeddings = embeddings.float()
    low, high = torch.stack(embeddings.aminmax()).tolist()
    top = max(-low, high)
    if not math.isfinite(top):
        bad = len(embeddings) - int(embeddings.isfinite().all(1).sum())
        raise ValueError(
            f"embeddings: expected finite numbers, got NaN or infinity in {bad} of "
            f"{len(embeddings)} rows"
        )
    if 1e-60 < top < 1e60 or top == 0:  # the evidence for modes has fourth powers
        return embeddings, 1.0
    scale = math.ldexp(1.0, math.frexp(top)[1] - 1)  # a power of two changes no digit
    return embeddings / scale, scale


def _numbered(
    within: Tensor, order: Tensor, classes: Tensor, sizes: Tensor, most: int
) -> tuple[Tensor, Tensor]:
    """Number the clusters that have samples by class and first sample; also their classes."""
    places = torch.arange(len(order), device=order.device)
    slots = torch.arange(len(classes), device=order.device).repeat_interleave(sizes)
    names = slots * most + within[order]  # of the samples in the order of their classes
    first = torch.full((len(classes) * most,), len(order), device=order.device)
    first.scatter_reduce_(0, names, places, "amin")
    by_first = first.argsort(stable=True)
    numbers = torch.empty_like(first)
    numbers[by_first] = torch.arange(len(first), device=order.device)
    clusters = torch.empty_like(order)
    clusters[order] = numbers[names]
    return clusters, classes[by_first[: int((first < len(order)).sum())] // most]


def cluster_means(vectors: Tensor, clusters: Tensor, counts: Tensor) -> Tensor:
    """(clusters, dim); counts: the samples of each cluster.

    >>> x = torch.tensor([[1.0, 0.0], [5.0, 5.0], [3.0, 0.0]])
    >>> cluster_means(x, torch.tensor([0, 1, 0]), torch.tensor([2, 1]))
    tensor([[2., 0.],
            [5., 5.]])
    """
    order = clusters.argsort(stable=True)
    starts = counts.cumsum(0) - counts
    if int(counts.max()) <= PART:
        return nn.functional.embedding_bag(order, vectors, starts, mode="mean")
    parts = (counts + PART - 1) // PART  # of each cluster
    owners = torch.arange(len(counts), device=counts.device).repeat_interleave(parts)
    within = torch.arange(len(owners), device=counts.device) - (parts.cumsum(0) - parts)[owners]
    part_starts = starts[owners] + PART * within
    part_sums = nn.functional.embedding_bag(order, vectors, part_starts, mode="sum")
    sums = part_sums.new_zeros(len(counts), vectors.shape[1], dtype=torch.float64)
    return sums.index_add_(0, owners, part_sums.double()).div_(counts[:, None]).to(vectors.dtype)
