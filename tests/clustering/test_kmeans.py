"""K-means in every class: optimal enough, exact where it must be, safe where data are odd."""

import math
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.cluster import KMeans
from torch import Tensor

from batches import DEGENERATE_BATCHES
from kinspace.clustering import ClassClusters, class_kmeans, kmeans, padded_classes

Count = int | Literal["auto"]


def blobs(
    classes: int, size: int, dim: int, count: int, distance: float, seed: int = 0
) -> tuple[Tensor, Tensor]:
    """Classes of round modes with unit variance, whose means are about so far from each other."""
    generator = torch.Generator().manual_seed(seed)
    means = torch.randn(classes, count, dim, generator=generator, dtype=torch.float64)
    means *= distance / 2**0.5 / means.norm(dim=2, keepdim=True)
    labels = torch.arange(classes * size) % classes
    mode = torch.arange(classes * size) // classes % count
    noise = torch.randn(classes * size, dim, generator=generator, dtype=torch.float64)
    mix = torch.randperm(classes * size, generator=generator)
    return (means[labels, mode] + noise)[mix], labels[mix]


def inertia(embeddings: Tensor, clusters: Tensor) -> float:
    """By the definition, in float64."""
    total = 0.0
    for cluster in clusters.unique():
        members = embeddings[clusters == cluster].double()
        total += float((members - members.mean(0)).square().sum())
    return total


def peer_inertia(embeddings: Tensor, labels: Tensor, count: int, starts: int) -> float:
    return sum(
        KMeans(count, n_init=starts, tol=0, random_state=0)
        .fit(embeddings[labels == label])
        .inertia_
        for label in labels.unique()
    )


def check_laws(embeddings: Tensor, labels: Tensor, count: Count, found: ClassClusters) -> None:
    """What holds for any data."""
    most = 8 if count == "auto" else count
    assert found.clusters.unique().tolist() == list(range(len(found.cluster_labels)))
    assert torch.equal(found.cluster_labels[found.clusters], labels)
    assert found.centers.isfinite().all()
    assert math.isfinite(found.inertia)
    for label in labels.unique():
        distinct = len(embeddings[labels == label].unique(dim=0))
        clusters = int((found.cluster_labels == label).sum())
        assert clusters <= distinct if count == "auto" else clusters == min(most, distinct)
    firsts = [int((found.clusters == k).nonzero()[0]) for k in range(len(found.cluster_labels))]
    order = [(int(found.cluster_labels[k]), first) for k, first in enumerate(firsts)]
    assert order == sorted(order)


# --- what it finds -------------------------------------------------------------------------------


def test_finds_the_clusters_that_anyone_would_see() -> None:
    x = torch.tensor([[0.0], [100.0], [1.0], [50.0], [101.0], [7.0], [51.0]])
    found = class_kmeans(x, torch.tensor([4, 4, 4, 4, 4, 2, 4]), 3)
    assert found.clusters.tolist() == [1, 2, 1, 3, 2, 0, 3]
    assert found.cluster_labels.tolist() == [2, 4, 4, 4]
    assert found.centers[:, 0].tolist() == [7.0, 0.5, 100.5, 50.5]
    assert found.inertia == 1.5


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-13)])
@pytest.mark.parametrize("size", [7, 5000])  # by the table, by the vectors
def test_centers_are_the_means_of_their_members(
    size: int, dtype: torch.dtype, tolerance: float
) -> None:
    x, labels = blobs(2, size, 5, 2, 3.0)
    found = class_kmeans((x + 4).to(dtype), labels, 2)
    for k, center in enumerate(found.centers):
        mean = (x + 4).to(dtype)[found.clusters == k].double().mean(0)
        assert torch.allclose(center.double(), mean, rtol=tolerance, atol=tolerance)
    assert found.centers.dtype == dtype
    assert found.inertia == pytest.approx(inertia((x + 4).to(dtype), found.clusters), rel=tolerance)


@pytest.mark.parametrize("size", [60, 700])
def test_a_sample_is_in_the_nearest_cluster_of_its_class(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kmeans, "TOLERANCE", 0.0)
    x, labels = blobs(3, size, 6, 1, 0.0)
    found = class_kmeans(x, labels, 4, iterations=500)
    squares = torch.cdist(x, found.centers)
    squares[found.cluster_labels != labels[:, None]] = math.inf
    assert torch.equal(squares.argmin(1), found.clusters)


def test_is_as_good_as_scikit_learn_with_many_starts_of_both() -> None:
    x, labels = blobs(4, 30, 3, 3, 9.0)
    found = class_kmeans(x, labels, 3, restarts=20)
    assert found.inertia <= (1 + 1e-9) * peer_inertia(x, labels, 3, 20)


@pytest.mark.parametrize("distance", [0.0, 6.0])
def test_has_at_most_two_percent_more_inertia_than_scikit_learn(distance: float) -> None:
    x, labels = blobs(30, 40, 64, 4, distance)
    assert class_kmeans(x.float(), labels, 4).inertia <= 1.02 * peer_inertia(x, labels, 4, 1)
    x, labels = blobs(4, 700, 8, 4, distance)
    assert class_kmeans(x.float(), labels, 8).inertia <= 1.02 * peer_inertia(x, labels, 8, 1)


def test_more_restarts_are_never_worse() -> None:
    x, labels = blobs(5, 40, 4, 5, 4.0)
    totals = [class_kmeans(x, labels, 5, restarts=restarts).inertia for restarts in (1, 2, 5, 9)]
    assert totals == sorted(totals, reverse=True)
    assert totals[-1] < totals[0]


def test_more_steps_are_never_worse() -> None:
    x, labels = blobs(5, 60, 4, 1, 0.0)
    totals = [class_kmeans(x, labels, 5, iterations=steps).inertia for steps in (1, 2, 4, 40)]
    assert totals == sorted(totals, reverse=True)


# --- what it does not depend on ------------------------------------------------------------------


def same(one: ClassClusters, other: ClassClusters) -> bool:
    return torch.equal(one.clusters, other.clusters) and torch.equal(
        one.cluster_labels, other.cluster_labels
    )


def test_a_seed_gives_one_result_and_leaves_the_global_generator_alone() -> None:
    x, labels = blobs(6, 50, 4, 1, 0.0)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = class_kmeans(x, labels, 4, seed=3)
    torch.manual_seed(2)
    assert same(first, class_kmeans(x, labels, 4, seed=3))
    assert not same(first, class_kmeans(x, labels, 4, seed=4))
    torch.manual_seed(1)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("count", [4, "auto"])
def test_the_division_in_groups_does_not_matter(
    count: Count, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, labels = blobs(9, 40, 16, 3, 7.0)
    labels = torch.where(torch.arange(360) % 5 == 0, labels % 4, labels)  # of several sizes
    whole = class_kmeans(x, labels, count)
    monkeypatch.setattr(padded_classes, "GROUP", {"cpu": 1})
    monkeypatch.setattr(padded_classes, "CHUNK", {"cpu": 1})
    assert same(whole, class_kmeans(x, labels, count))
    monkeypatch.setattr(padded_classes, "GROUP", {"cpu": 2**30})
    monkeypatch.setattr(padded_classes, "GROWTH", 100.0)  # all classes in one, with much padding
    assert same(whole, class_kmeans(x, labels, count))


@pytest.mark.parametrize("count", [4, "auto"])
def test_tables_and_vectors_give_the_same_clusters(
    count: Count, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, labels = blobs(9, 40, 24, 3, 7.0)
    x[5], x[6] = x[4], x[4] + 1e-9
    by_table = class_kmeans(x, labels, count)
    monkeypatch.setattr(padded_classes, "TABLE", 0)
    by_vectors = class_kmeans(x, labels, count)
    assert same(by_table, by_vectors)
    assert by_table.inertia == pytest.approx(by_vectors.inertia, rel=1e-12)


@pytest.mark.parametrize("count", [3, "auto"])
@pytest.mark.parametrize("scale", [1e-300, 1e-160, 1e-6, 1e6, 1e160, 1e300])
def test_the_scale_does_not_matter(scale: float, count: Count) -> None:
    x, labels = blobs(4, 20, 5, 3, 9.0)
    found = class_kmeans(x * scale, labels, count)
    assert same(class_kmeans(x, labels, count), found)
    assert found.centers.isfinite().all()


@pytest.mark.parametrize(("dtype", "offset"), [(torch.float32, 1e4), (torch.float64, 1e8)])
@pytest.mark.parametrize("size", [30, 900])
def test_a_far_place_does_not_matter(size: int, dtype: torch.dtype, offset: float) -> None:
    x, labels = blobs(4, size, 5, 3, 9.0)
    moved = (x + offset).to(dtype)
    assert same(class_kmeans(moved.double() - offset, labels, 3), class_kmeans(moved, labels, 3))


def test_half_precision_is_raised_to_float32() -> None:
    x, labels = blobs(4, 20, 5, 3, 9.0)
    for dtype in (torch.float16, torch.bfloat16):
        found = class_kmeans(x.to(dtype), labels, 3)
        assert found.centers.dtype == torch.float32
        assert same(found, class_kmeans(x.to(dtype).float(), labels, 3))


@pytest.mark.parametrize("scales", [(1.0, 1.0, 1.0, 1.0), (1e-30, 1e-18, 1e15, 1e30)])
def test_float32_gives_the_clusters_of_float64(scales: tuple[float, ...]) -> None:
    x, labels = blobs(4, 40, 64, 3, 9.0)
    x = (x * torch.tensor(scales)[labels, None]).float()
    x[1], x[2] = x[0], x[0] * (1 + 1e-6)
    for count in (3, 39):
        assert same(class_kmeans(x, labels, count), class_kmeans(x.double(), labels, count))


def test_settings_for_speed_do_not_reach_it(request: pytest.FixtureRequest) -> None:
    x, labels = blobs(8, 40, 64, 1, 0.0)
    plain = class_kmeans(x.float(), labels, 3)
    before = torch.get_float32_matmul_precision()
    request.addfinalizer(lambda: torch.set_float32_matmul_precision(before))
    torch.set_float32_matmul_precision("medium")
    assert same(plain, class_kmeans(x.float(), labels, 3))
    with torch.autocast("cpu", torch.bfloat16):
        assert same(plain, class_kmeans(x.float(), labels, 3))
    torch.set_float32_matmul_precision("highest")
    with torch.autocast("cpu", torch.bfloat16):
        assert same(plain, class_kmeans(x.float(), labels, 3))


def test_labels_are_names() -> None:
    x, labels = blobs(5, 20, 5, 2, 3.0)
    named = class_kmeans(x, 1000 * labels + 7, 2)
    plain = class_kmeans(x, labels, 2)
    assert torch.equal(named.clusters, plain.clusters)
    assert torch.equal(named.cluster_labels, 1000 * plain.cluster_labels + 7)


def test_no_gradient_is_kept() -> None:
    x, labels = blobs(2, 9, 3, 2, 3.0)
    assert not class_kmeans(x.requires_grad_(), labels, 2).centers.requires_grad


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("count", [4, "auto"])
@pytest.mark.parametrize("size", [40, 900])
def test_a_gpu_gives_the_clusters_of_the_cpu(size: int, count: Count) -> None:
    x, labels = blobs(20, size, 32, 3, 7.0)
    found = class_kmeans(x.cuda(), labels.cuda(), count)
    assert found.centers.is_cuda
    assert torch.equal(found.clusters.cpu(), class_kmeans(x, labels, count).clusters)


# --- odd data ------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 3, "auto"])
def test_a_single_sample_beyond_the_squares_of_float32_is_its_own_center(count: Count) -> None:
    x = torch.tensor([[1e30, -1e25], [3.0, 1.0], [1e-30, 1e-25]])
    found = class_kmeans(x, torch.tensor([0, 1, 2]), count)
    assert torch.equal(found.centers, x)
    assert found.inertia == 0


@pytest.mark.parametrize("count", [1, 2, 3, 50, "auto"])
@pytest.mark.parametrize("name", DEGENERATE_BATCHES)
@pytest.mark.parametrize("table", [0, 512])
def test_degenerate_classes_are_safe(
    table: int, name: str, count: Count, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(padded_classes, "TABLE", table)
    batch = DEGENERATE_BATCHES[name]
    check_laws(*batch, count, class_kmeans(*batch, count))
    found = class_kmeans(batch.embeddings.float(), batch.labels, count)
    check_laws(batch.embeddings.float(), batch.labels, count, found)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 2), st.integers(-2, 2)), min_size=1),
    count=st.sampled_from([1, 2, 3, 7, "auto"]),
    seed=st.integers(0, 9),
)
def test_laws_hold_on_points_with_many_ties(rows: list[Any], count: Count, seed: int) -> None:
    labels = torch.tensor([row[0] for row in rows])
    x = torch.tensor([row[1:] for row in rows], dtype=torch.float64)
    check_laws(x, labels, count, class_kmeans(x, labels, count, seed=seed))


@pytest.mark.parametrize("table", [0, 512])
def test_equal_rows_are_one_point_and_nearly_equal_ones_are_two(
    table: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(padded_classes, "TABLE", table)
    generator = torch.Generator().manual_seed(0)
    row = torch.randn(33, generator=generator)
    step = torch.zeros(33)
    step[4] = 1e-5
    far = 100 * torch.randn(33, generator=generator)
    x = torch.stack([row, row + step, far, row, row + step, row, far])
    found = class_kmeans(x, torch.zeros(7, dtype=torch.long), 5)
    assert found.clusters.tolist() == [0, 1, 2, 0, 1, 0, 2]
    assert found.inertia == pytest.approx(0, abs=1e-9)  # of squares up to 1e5


def test_zero_and_minus_zero_are_one_point() -> None:
    x = torch.tensor([[0.0], [-0.0], [0.0]])
    assert len(class_kmeans(x, torch.zeros(3, dtype=torch.long), 3).cluster_labels) == 1


def group_of(x: Tensor) -> padded_classes.PaddedClasses:
    rows = torch.arange(len(x))
    (group,) = padded_classes.padded_classes(x, rows, torch.tensor([len(x)]), 3)
    return group


@pytest.mark.parametrize("table", [0, 512])
def test_a_cluster_without_samples_takes_the_farthest(
    table: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(padded_classes, "TABLE", table)
    group = group_of(torch.tensor([[-1.0], [1.0], [-3.0], [3.0], [-5.0], [5.0]]))
    start = torch.tensor([[0, 0, 1, 1, 2, 2]])  # three means at 0: all samples go to the first
    clusters, _ = kmeans.lloyd(group, start, 3, 1)
    assert clusters.tolist() == [[0, 0, 0, 0, 1, 2]]
    clusters, squares = kmeans.lloyd(group, start, 3, 50)
    assert clusters.tolist() == [[0, 0, 1, 2, 1, 2]]
    assert kmeans.own(squares, clusters).tolist() == [[1.0] * 6]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"embeddings": torch.full((4, 2), math.nan)}, "got NaN or infinity in 4 of 4 rows"),
        ({"embeddings": torch.tensor([[0.0], [math.inf], [1.0], [2.0]])}, "in 1 of 4 rows"),
        ({"embeddings": torch.zeros(3)}, r"embeddings: expected a matrix \(rows, dim\)"),
        ({"labels": torch.zeros(3, dtype=torch.long)}, r"labels: expected shape \(4,\)"),
        ({"clusters_per_class": 0}, "clusters_per_class: expected at least 1, got 0"),
        ({"clusters_per_class": 2.5}, "clusters_per_class: expected a whole number, got 2.5"),
        ({"clusters_per_class": "many"}, "expected a whole number or 'auto', got 'many'"),
        ({"clusters_per_class": "auto", "max_clusters": 0}, "max_clusters: expected at least 1"),
        ({"iterations": 0}, "iterations: expected at least 1, got 0"),
        ({"restarts": 0}, "restarts: expected at least 1, got 0"),
    ],
)
def test_says_what_is_wrong(arguments: dict[str, Any], message: str) -> None:
    fine = {
        "embeddings": torch.zeros(4, 2),
        "labels": torch.zeros(4, dtype=torch.long),
        "clusters_per_class": 2,
    }
    with pytest.raises(ValueError, match=message):
        class_kmeans(**(fine | arguments))


# --- the number of modes -------------------------------------------------------------------------


def found_modes(x: Tensor, labels: Tensor, **options: Any) -> Tensor:
    return class_kmeans(x, labels, "auto", **options).cluster_labels.bincount()


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize(
    ("dim", "size", "distance"), [(64, 20, 14), (64, 200, 10), (512, 60, 20), (1024, 60, 25)]
)
def test_recovers_the_number_of_modes(dim: int, size: int, distance: float, count: int) -> None:
    x, labels = blobs(30, size, dim, count, distance)
    assert (found_modes(x.float(), labels) == count).double().mean() >= 0.9


@pytest.mark.parametrize("dim", [2, 64, 512])
@pytest.mark.parametrize("size", [10, 60])
def test_does_not_split_a_class_that_is_longer_one_way(size: int, dim: int) -> None:
    x, labels = blobs(60, size, dim, 1, 0.0)
    x /= torch.arange(1, dim + 1).sqrt()
    assert (found_modes(x, labels) == 1).double().mean() >= 0.9


def test_does_not_split_heavy_tails() -> None:
    x, labels = blobs(60, 60, 64, 1, 0.0)
    stretch = torch.from_numpy(np.random.default_rng(0).standard_t(3, (len(x), 1)))
    assert (found_modes(x * stretch, labels) == 1).double().mean() >= 0.9


@pytest.mark.parametrize("count", [1, 2, 3])
def test_an_outlier_is_no_mode_and_hides_none(count: int) -> None:
    x, labels = blobs(30, 60, 64, count, 12.0)
    generator = torch.Generator().manual_seed(1)
    x[:60] = 5 * torch.randn(60, 64, generator=generator, dtype=torch.float64)
    assert (found_modes(x, labels) == count).double().mean() >= 0.9


def test_finds_no_more_modes_than_it_may() -> None:
    x, labels = blobs(10, 60, 32, 5, 30.0)
    assert found_modes(x, labels).tolist() == [5] * 10
    assert found_modes(x, labels, max_clusters=3).max() <= 3
    assert found_modes(x, labels, max_clusters=1).tolist() == [1] * 10


def test_a_mode_has_at_least_two_samples() -> None:
    x = torch.tensor([[0.0], [0.0], [9.0], [5.0], [5.0], [1.0], [1.0]])
    found = class_kmeans(x, torch.tensor([0, 0, 0, 1, 1, 1, 1]), "auto")
    assert found.clusters.tolist() == [0, 0, 0, 1, 1, 2, 2]


def evidence_by_a_loop(x: Tensor, a: Tensor, b: Tensor) -> float:
    """By the formula in the module docstring."""

    def far(i: int, members: Tensor) -> float:
        rest = x[members[members != i]]
        return float((x[i] - rest.mean(0)).square().sum())

    both = torch.cat([a, b]).tolist()
    t = np.array([far(i, b) - far(i, a) for i in both])
    n, n_a, n_b = len(both), len(a), len(b)
    within = t[:n_a].var() * n_a / n + t[n_a:].var() * n_b / n
    shares = n_a * math.log(n_a / n) + n_b * math.log(n_b / n)
    return (n - 2) / 2 * math.log(t.var() / within) + shares - math.log(n)


def test_the_evidence_is_that_of_the_formula() -> None:
    x, _ = blobs(1, 23, 6, 2, 5.0)
    group = group_of(x)
    clusters = torch.tensor([[0] * 9 + [1] * 11 + [2] * 3])
    _, squares = kmeans.lloyd(group, clusters, 4, 0)
    members = kmeans.members_of(group, clusters, 4)
    found = kmeans.mode_evidence(members, squares, clusters)[0]
    parts = [torch.arange(9), torch.arange(9, 20), torch.arange(20, 23)]
    for a, b in ((0, 1), (0, 2), (1, 2)):
        gap = evidence_by_a_loop(x, parts[a], parts[b])
        assert found[a, b].item() == pytest.approx(gap, rel=1e-9) or found[a, b] == -math.inf
        assert found[a, b] == found[b, a]
    assert (found.diagonal() == math.inf).all()
    assert (found[3] == math.inf).all()
