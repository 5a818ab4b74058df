"""Blocked K-means against scikit-learn's and loops."""

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans

from kinspace.evaluation import blocked_kmeans
from kinspace.evaluation.blocked_kmeans import kmeans


def blobs(count: int, classes: int, dim: int, noise: float) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    y = torch.arange(count) % classes
    x = torch.randn(classes, dim, generator=generator)[y]
    return x + noise * torch.randn(count, dim, generator=generator), y


@pytest.mark.parametrize(("count", "classes", "dim"), [(600, 7, 8), (900, 150, 12)])
def test_inertia_is_near_scikit_learns(count: int, classes: int, dim: int) -> None:
    x, _ = blobs(count, classes, dim, 0.5)
    peers = [
        KMeans(classes, n_init=1, random_state=seed).fit(x.double().numpy()).inertia_
        for seed in range(4)
    ]
    for points in (x, x.double(), x + 100):
        ours = [kmeans(points, classes, seed=seed) for seed in range(4)]
        assert np.mean([one.inertia for one in ours]) < 1.05 * np.mean(peers)
        for one in ours:
            assert len(one.clusters.unique()) == classes
            means = torch.stack(
                [points[one.clusters == c].double().mean(0) for c in range(classes)]
            )
            by_hand = (points.double() - means[one.clusters]).square().sum()
            assert one.inertia == pytest.approx(float(by_hand), rel=1e-4)


def test_one_seed_gives_one_result_and_blocks_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, _ = blobs(300, 20, 6, 0.3)
    first = kmeans(x, 20, seed=3)
    assert torch.equal(first.clusters, kmeans(x, 20, seed=3).clusters)
    monkeypatch.setitem(blocked_kmeans.BLOCK, "cpu", 700)
    assert torch.equal(first.clusters, kmeans(x, 20, seed=3).clusters)


def test_in_the_end_each_sample_is_nearest_to_the_mean_of_its_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Steps look only at what has moved: the end must still be one of Lloyd's, over all centers."""
    monkeypatch.setattr(blocked_kmeans, "TOLERANCE", 0.0)
    x, _ = blobs(500, 40, 8, 0.9)
    found = kmeans(x.double(), 40, iterations=500)
    apart = ((x.double()[:, None] - found.centers) ** 2).sum(2)
    assert torch.equal(apart.argmin(1), found.clusters)
    by_hand = torch.stack([x[found.clusters == c].double().mean(0) for c in range(40)])
    torch.testing.assert_close(found.centers, by_hand)


def test_equal_points_and_more_clusters_than_points() -> None:
    found = kmeans(torch.ones(5, 2), 3)
    assert found.inertia == 0
    assert len(found.clusters.unique()) == 3
    assert kmeans(torch.arange(4.0)[:, None], 9).inertia == 0
