"""Query expansion and k-reciprocal re-ranking against loops by their definitions."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from kinspace.search import expand_queries, k_reciprocal_distances


def clumps(noise: float = 0.8, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(seed)
    y = np.arange(60) % 6
    x = rng.standard_normal((6, 8))[y] + noise * rng.standard_normal((60, 8))
    return torch.from_numpy(x), torch.from_numpy(y)


def loop(x: NDArray[np.float64], k: int, expand: int, weight: float) -> NDArray[np.float64]:
    """One pair at a time, with sets."""
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    d = ((x[:, None] - x[None]) ** 2).sum(2)
    d = d / d.max(1, keepdims=True)
    n = len(x)
    near = [list(np.argsort(d[i], kind="stable")) for i in range(n)]

    def reciprocal(i: int, k: int) -> set[int]:
        return {int(j) for j in near[i][: k + 1] if i in near[j][: k + 1]}

    v = np.zeros((n, n))
    for i in range(n):
        own = reciprocal(i, k)
        found = set(own)
        for j in own:
            theirs = reciprocal(j, max(1, round(k / 2)))
            if len(theirs & own) > 2 / 3 * len(theirs):
                found |= theirs
        for j in found:
            v[i, j] = np.exp(-d[i, j])
        v[i] /= v[i].sum()
    v = np.stack([np.mean([v[j] for j in near[i][:expand]], axis=0) for i in range(n)])
    shared = np.minimum(v[:, None], v[None]).sum(2) / np.maximum(v[:, None], v[None]).sum(2)
    return (1 - weight) * (1 - shared) + weight * d


@pytest.mark.parametrize(("k", "expand", "weight"), [(8, 3, 0.3), (5, 1, 0.0), (20, 6, 0.5)])
def test_k_reciprocal_distances_equal_a_loop(k: int, expand: int, weight: float) -> None:
    x, _ = clumps()
    found = k_reciprocal_distances(x, k=k, expand=expand, weight=weight)
    assert np.allclose(found, loop(x.numpy(), k, expand, weight), atol=1e-5)


def test_queries_and_gallery_are_one_table() -> None:
    x, _ = clumps()
    found = k_reciprocal_distances(x[:20], x[20:], k=8)
    assert np.allclose(found, k_reciprocal_distances(x, k=8)[:20, 20:], atol=1e-6)


def mean_precision(order: NDArray[np.int64], y: NDArray[np.int64]) -> float:
    found = []
    for query, row in enumerate(order):
        hits = y[row[row != query]] == y[query]
        found.append((np.cumsum(hits) / np.arange(1, len(hits) + 1))[hits].mean())
    return float(np.mean(found))


def test_shared_neighbors_order_better_than_distances() -> None:
    x, y = clumps()
    distances = k_reciprocal_distances(x, k=8)
    before = 1 - torch.nn.functional.cosine_similarity(x[:, None], x[None], dim=2)
    after = mean_precision(distances.argsort(1), y.numpy())
    assert after > mean_precision(before.numpy().argsort(1), y.numpy()) + 0.05


def test_expanded_queries_equal_a_loop() -> None:
    x, _ = clumps()
    queries, gallery = x[:10], x[10:]
    found = expand_queries(queries, gallery, neighbors=4, alpha=2.0)
    units = gallery / gallery.norm(dim=1, keepdim=True)
    for query, row in zip(queries / queries.norm(dim=1, keepdim=True), found, strict=True):
        cosines = units @ query
        total = query.clone()
        for place in cosines.argsort(descending=True)[:4]:
            total += max(float(cosines[place]), 0.0) ** 2 * units[place]
        assert torch.allclose(row, total / total.norm())


def test_a_query_does_not_expand_with_itself() -> None:
    x, _ = clumps()
    assert torch.allclose(
        expand_queries(x, neighbors=2)[0], expand_queries(x[:1], x[1:], neighbors=2)[0]
    )
