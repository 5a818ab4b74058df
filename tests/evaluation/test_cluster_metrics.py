"""Agreement of partitions, against scikit-learn and loops, and K-means of all vectors."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.metrics import adjusted_mutual_info_score, normalized_mutual_info_score

from kinspace.evaluation import ami, cluster_metrics, clustering_metrics, nmi, pairwise_f1
from kinspace.evaluation.cluster_metrics import kmeans

REFERENCE = Path(__file__).parents[1] / "fixtures" / "reference"


def partitions() -> list[tuple[Any, Any]]:
    rng = np.random.default_rng(0)
    found = [
        (rng.integers(0, a, 60), rng.integers(0, b, 60)) for a, b in ((3, 3), (5, 20), (40, 9))
    ]
    y = rng.integers(0, 6, 200)
    return [*found, (y, np.where(rng.random(200) < 0.2, 9, y))]


@pytest.mark.parametrize(("labels", "clusters"), partitions())
def test_equals_scikit_learn_and_a_loop_over_pairs(labels: Any, clusters: Any) -> None:
    assert nmi(labels, clusters) == pytest.approx(
        normalized_mutual_info_score(labels, clusters), rel=1e-10
    )
    assert ami(labels, clusters) == pytest.approx(
        adjusted_mutual_info_score(labels, clusters), rel=1e-8, abs=1e-12
    )
    pairs = list(itertools.combinations(range(len(labels)), 2))
    both = sum(labels[i] == labels[j] and clusters[i] == clusters[j] for i, j in pairs)
    precision = both / sum(clusters[i] == clusters[j] for i, j in pairs)
    recall = both / sum(labels[i] == labels[j] for i, j in pairs)
    expected = 2 * precision * recall / (precision + recall)
    assert pairwise_f1(labels, clusters) == pytest.approx(expected, rel=1e-12)
    assert nmi(clusters, labels) == pytest.approx(nmi(labels, clusters), rel=1e-12)


@pytest.mark.parametrize("number", [0, 1])
def test_equals_the_worked_cases(number: int) -> None:
    with np.load(REFERENCE / f"clustering_metrics__{number:03}.npz") as case:
        labels, clusters = case["in_labels"], case["in_clusters"]
        assert nmi(labels, clusters) == pytest.approx(float(case["out_nmi_arithmetic"]), rel=1e-9)
        assert pairwise_f1(labels, clusters) == pytest.approx(float(case["out_f1"]), rel=1e-9)


def test_trivial_partitions() -> None:
    one, each = np.zeros(4, int), np.arange(4)
    assert (nmi(one, one), ami(one, one), pairwise_f1(one, one)) == (1, 1, 1)
    assert (nmi(each, each), ami(each, each), pairwise_f1(each, each)) == (1, 1, 0)
    assert (nmi(one, each), pairwise_f1(one, each)) == (0, 0)
    assert ami(one, each) == pytest.approx(0, abs=1e-12)


def test_words_and_tensors_are_labels_too() -> None:
    words = np.array(["io", "luna", "io"])
    assert nmi(words, torch.tensor([3, 1, 3])) == 1
    with pytest.raises(ValueError, match=r"clusters: expected shape \(3,\)"):
        nmi(words, np.zeros(2, int))
    with pytest.raises(ValueError, match="labels: expected at least one"):
        nmi(np.zeros(0, int), np.zeros(0, int))


def blobs(count: int, classes: int, dim: int, noise: float) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    y = torch.arange(count) % classes
    x = torch.randn(classes, dim, generator=generator)[y]
    return x + noise * torch.randn(count, dim, generator=generator), y


def test_well_separated_classes_are_found() -> None:
    x, y = blobs(400, 10, 16, 0.05)
    found = clustering_metrics(x, y, restarts=3)
    assert found["nmi"] > 0.9
    assert found["clusters"] == 10
    assert found["nmi_spread"] >= 0
    runs = [clustering_metrics(x, y, restarts=1, seed=seed)["nmi"] for seed in range(3)]
    assert found["nmi"] == pytest.approx(np.mean(runs), rel=1e-12)
    assert found["nmi_spread"] == pytest.approx(np.std(runs, ddof=1), rel=1e-9)
    assert clustering_metrics(10 * x, y, restarts=3)["nmi"] == pytest.approx(found["nmi"], rel=1e-6)


def test_bad_options_are_refused() -> None:
    x, y = blobs(6, 2, 2, 0.1)
    with pytest.raises(ValueError, match="restarts: expected at least 1"):
        clustering_metrics(x, y, restarts=0)
    with pytest.raises(ValueError, match="metric: expected one of"):
        clustering_metrics(x, y, metric="l2")
    with pytest.raises(ValueError, match="NaN or infinity"):
        clustering_metrics(x * torch.nan, y)


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
    monkeypatch.setitem(cluster_metrics.BLOCK, "cpu", 700)
    assert torch.equal(first.clusters, kmeans(x, 20, seed=3).clusters)


def test_in_the_end_each_sample_is_nearest_to_the_mean_of_its_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Steps look only at what has moved: the end must still be one of Lloyd's, over all centers."""
    monkeypatch.setattr(cluster_metrics, "TOLERANCE", 0.0)
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
