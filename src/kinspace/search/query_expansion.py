"""Two ways to a better order of what a search finds, without training: for a gallery in memory.

Average query expansion (Chum et al., 2007; weighted as Radenovic et al., 2019, "alpha-QE"): the
query becomes the sum of itself and its n nearest gallery vectors g_i, each times its cosine to the
power alpha, at length 1, and searches again.

    q' = unit( q + sum_{i <= n} max(cos(q, g_i), 0)^alpha g_i )

k-reciprocal re-ranking (Zhong et al., CVPR 2017): two items are near where they share neighbors.
R(p) are those of the k nearest of p that have p among their own k nearest, and those of each of
them (k / 2), where two thirds are in R(p) already. With V(p)_j = exp(-d(p, j)) for j in R(p), else
0, the mean of V over the `expand` nearest of p, all sums scaled to 1, and d the squared distance
over the largest of p:

    d*(p, g) = (1 - weight) (1 - sum_j min(V_pj, V_gj) / sum_j max(V_pj, V_gj)) + weight d(p, g)

Both look at the gallery as a whole, so that an answer depends on what else is in it: cosines and
thresholds of a gallery do not hold for them. A table of all pairs of queries and gallery is made.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kinspace._core import checks
from kinspace._core.vectors import unit
from kinspace.evaluation.similarity import Vectors, nearest, vectors_of

__all__ = ["expand_queries", "k_reciprocal_distances"]


def expand_queries(
    queries: Vectors, gallery: Vectors | None = None, *, neighbors: int = 3, alpha: float = 3.0
) -> Tensor:
    """The queries after average query expansion (queries, dim); None: within themselves.

    >>> gallery = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    >>> expand_queries(torch.tensor([[0.8, 0.6]]), gallery, neighbors=2, alpha=0)
    tensor([[0.9692, 0.2464]])
    """
    checks.number("alpha", alpha, at_least=0)
    x = unit(vectors_of(queries))
    others = x if gallery is None else unit(vectors_of(gallery, device=x.device, name="gallery"))
    cosines, index = nearest(x, neighbors, gallery=None if gallery is None else others)
    weights = cosines.clamp(min=0).pow(alpha).to(x.dtype)
    return unit(x + (weights[:, :, None] * others[index]).sum(1))


def k_reciprocal_distances(
    queries: Vectors,
    gallery: Vectors | None = None,
    *,
    k: int = 20,
    expand: int = 6,
    weight: float = 0.3,
) -> NDArray[np.float32]:
    """The distances d* of the module's docstring, (queries, gallery); None: within themselves.

    >>> x = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])
    >>> k_reciprocal_distances(x, k=1, expand=1).argsort(1)[:, :2]
    array([[0, 1],
           [1, 0],
           [2, 3],
           [3, 2]])
    """
    checks.integer("k", k, at_least=1)
    checks.integer("expand", expand, at_least=1)
    checks.number("weight", weight, at_least=0)
    x = unit(vectors_of(queries)).cpu().float()
    count = len(x)
    if gallery is not None:
        x = torch.cat([x, unit(vectors_of(gallery, name="gallery")).cpu().float()])
    distances = (2 - 2 * x @ x.T).clamp_(min=0).fill_diagonal_(0).numpy()
    distances /= distances.max(1, keepdims=True).clip(1e-12)
    k = min(k, len(x) - 1)
    order = np.argsort(distances, axis=1, kind="stable")[:, : k + 1]
    shares = _shares(distances, order, k)
    if expand > 1:
        near = order[:, : min(expand, k + 1)]
        total: NDArray[np.float32] = np.zeros_like(shares)
        for column in near.T:  # no table of (items, expand, items)
            total += shares[column]
        shares = total
        shares /= near.shape[1]
    rows = slice(0, count)
    columns = rows if gallery is None else slice(count, None)
    jaccard = _jaccard(shares[rows], shares[columns])
    mixed = (1 - weight) * jaccard + weight * distances[rows, columns]
    found: NDArray[np.float32] = mixed.astype(np.float32)
    return found


def _shares(
    distances: NDArray[np.float32], order: NDArray[np.int64], k: int
) -> NDArray[np.float32]:
    """V: for each item its share in each other, (items, items)."""
    full, half = _reciprocal(order, k), _reciprocal(order, max(1, round(k / 2)))
    shares = np.zeros_like(distances)
    for item, own in enumerate(full):
        chosen = [own]
        for other in own:
            theirs = half[other]
            if np.isin(theirs, own).sum() > 2 / 3 * len(theirs):
                chosen.append(theirs)
        within = np.unique(np.concatenate(chosen))
        values = np.exp(-distances[item, within])
        shares[item, within] = values / values.sum()
    return shares


def _reciprocal(order: NDArray[np.int64], k: int) -> list[NDArray[np.int64]]:
    """Of each item those of its k nearest that have it among theirs; the item itself is one."""
    near = order[:, : k + 1]
    mutual = (near[near] == np.arange(len(near))[:, None, None]).any(2)
    return [row[found] for row, found in zip(near, mutual, strict=True)]


def _jaccard(queries: NDArray[np.float32], gallery: NDArray[np.float32]) -> NDArray[np.float32]:
    """1 - sum min / sum max of rows whose sums are 1: sum max is 2 - sum min."""
    shared = np.zeros((len(queries), len(gallery)), np.float32)
    for row, values in enumerate(queries):
        used = np.flatnonzero(values)
        shared[row] = np.minimum(values[used], gallery[:, used]).sum(1)
    return 1 - shared / (2 - shared)
