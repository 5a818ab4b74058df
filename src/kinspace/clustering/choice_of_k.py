"""How many clusters a class has, by its own samples: the evidence for two modes instead of one.

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

import torch
from torch import Tensor

from kinspace.clustering.lloyd import kmeans, lloyd, members_of, own
from kinspace.clustering.padded_classes import PaddedClasses

__all__ = ["clusters_by_modes", "mode_evidence"]

RESTARTS = 4  # at least: a bad local optimum at the right number of clusters hides the modes


def clusters_by_modes(
    group: PaddedClasses, draws: Tensor, iterations: int
) -> tuple[Tensor, Tensor]:
    """Clusters of the samples within their class, one for each mode; see `lloyd.kmeans`."""
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
