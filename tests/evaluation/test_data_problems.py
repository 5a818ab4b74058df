"""Geometry, problems in the data, hierarchy and comparisons, against loops and planted cases."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from kinspace.evaluation import (
    alignment,
    class_geometry,
    compare_queries,
    compare_seeds,
    confused_classes,
    data_problems,
    geometry,
    hidden_groups,
    mean_and_spread,
    merged_pairs,
    near_duplicates,
    nearest,
    recall_at_k,
    recall_gap,
    recovery_error,
    spectrum,
    suspect_labels,
    uniformity,
)


def clumps(seed: int, count: int, classes: int, dim: int = 6, pull: float = 1.0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, count)
    return pull * rng.standard_normal((classes, dim))[y] + rng.standard_normal((count, dim)), y


def units(x: Any) -> Any:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


# --- geometry ------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_class_geometry_equals_a_loop(metric: str) -> None:
    x, y = clumps(0, 50, 5)
    y[0] = 9
    points = units(x) if metric == "cosine" else x
    found = class_geometry(x, y, metric=metric)
    means = {label: points[y == label].mean(0) for label in np.unique(y)}
    for i, label in enumerate(found.labels):
        own = points[y == label]
        assert found.counts[i] == len(own)
        expected = np.mean([((row - means[label]) ** 2).sum() for row in own])
        assert found.density[i] == pytest.approx(expected, rel=1e-12, abs=1e-15)
        gaps = {o: np.linalg.norm(means[label] - means[o]) for o in means if o != label}
        assert found.neighbor[i] == min(gaps, key=lambda other: gaps[other])
        assert found.gap[i] == pytest.approx(min(gaps.values()), rel=1e-12)
    summary = found.summary()
    several = found.counts > 1
    assert summary["intra"] == pytest.approx(np.sqrt(found.density[several]).mean())
    assert summary["intra_to_inter"] == pytest.approx(summary["intra"] / summary["inter"])


def test_one_class_has_no_gap() -> None:
    found = class_geometry(np.eye(3), np.zeros(3, int))
    assert np.isnan(found.gap).all()


def test_alignment_and_uniformity_equal_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = clumps(1, 40, 5)
    p = units(x)
    pairs = list(itertools.combinations(range(40), 2))
    apart = {(i, j): ((p[i] - p[j]) ** 2).sum() for i, j in pairs}
    expected = np.mean([d for (i, j), d in apart.items() if y[i] == y[j]])
    assert alignment(x, y) == pytest.approx(expected, rel=1e-12)
    expected = math.log(np.mean([math.exp(-2 * d) for d in apart.values()]))
    assert uniformity(x) == pytest.approx(expected, rel=1e-5)
    monkeypatch.setitem(geometry.BLOCK, "cpu", 40 * 7)
    assert uniformity(x) == pytest.approx(expected, rel=1e-5)
    assert math.isnan(alignment(x, np.arange(40)))
    with pytest.raises(ValueError, match="at least two"):
        uniformity(x[:1])


def test_spectrum_equals_the_singular_values() -> None:
    x, _ = clumps(2, 60, 4)
    p = units(x) - units(x).mean(0)
    values = np.linalg.svd(p, compute_uv=False)
    shares = values / values.sum()
    found = spectrum(x)
    np.testing.assert_allclose(found["shares"], shares, rtol=1e-8)
    expected = math.exp(-(shares * np.log(shares)).sum())
    assert found["effective_rank"] == pytest.approx(expected, rel=1e-8)
    uniform = np.full(6, 1 / 6)
    assert found["decay"] == pytest.approx(stats.entropy(uniform, shares), rel=1e-8)
    flat = np.zeros((5, 3))
    flat[:, 0] = np.arange(5)
    line = spectrum(flat, metric="euclidean")
    assert line["effective_rank"] == pytest.approx(1)
    assert line["decay"] > 10
    one_direction = np.outer(np.linspace(0.1, 9, 40), x[0])
    for same in (np.ones((4, 2)), np.full((7, 3), 0.1), one_direction, np.float32(one_direction)):
        with pytest.raises(ValueError, match="all the same"):
            spectrum(same)


def test_recall_gap_is_a_difference() -> None:
    x, y = clumps(3, 60, 5, pull=3.0)
    z, w = clumps(4, 60, 5, pull=0.5)
    found = recall_gap(x, y, z, w, ks=(1, 4))
    ours, theirs = recall_at_k(x, y, (1, 4)), recall_at_k(z, w, (1, 4))
    assert found == {k: ours[k] - theirs[k] for k in (1, 4)}
    assert found[1] > 0


# --- problems ------------------------------------------------------------------------------------


def test_planted_wrong_labels_are_found_and_named() -> None:
    x, y = clumps(5, 200, 5, dim=16, pull=4.0)
    wrong = [3, 77, 150]
    truth = y[wrong].copy()
    y[wrong] = (y[wrong] + 1) % 5
    found = suspect_labels(x, y)
    assert sorted(one.index for one in found) == wrong
    for one in found:
        assert one.suggested == truth[wrong.index(one.index)]
        assert one.label == y[one.index]
        assert one.other - one.own >= 0.5
    assert [one.own - one.other for one in found] == sorted(one.own - one.other for one in found)


def test_suspect_labels_equal_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_problems, "ROWS", 17)
    x, y = clumps(10, 120, 12, pull=0.8)
    p = units(x)
    expected = {}
    for i in range(120):
        order = np.argsort(-(p @ p[i]), kind="stable")
        near = y[order[order != i][:6]]
        shares = {c: (near == c).sum() / min(6, (y == c).sum() - (c == y[i])) for c in near}
        own = shares.pop(y[i], 0.0)
        shares = {c: share for c, share in shares.items() if (near == c).sum() >= 2}
        if shares:
            best = min(shares, key=lambda c: (-shares[c], c))
            if shares[best] - own >= 0.3:
                expected[i] = (best, own, shares[best])
    found = suspect_labels(x, y, k=6, at_least=0.3)
    assert {one.index: (one.suggested, one.own, one.other) for one in found} == expected
    assert len(expected) > 10
    _, known = nearest(torch.from_numpy(x), 6)
    assert suspect_labels(x, y, at_least=0.3, neighbors=known) == found
    assert confused_classes(x, y, neighbors=known) == confused_classes(x, y)


def test_a_class_that_is_there_with_one_sample_casts_no_suspicion() -> None:
    x, _ = clumps(11, 40, 5)
    assert suspect_labels(x, np.arange(40)) == []
    assert suspect_labels(np.eye(2), np.array([0, 1])) == []
    assert suspect_labels(np.eye(2), np.array([0, 0])) == []


def test_a_small_class_is_not_suspect_for_being_small() -> None:
    x, y = clumps(6, 100, 3, dim=16, pull=6.0)
    x[:2] = 50 * np.eye(16)[:1] + 0.01 * x[:2]
    y[:2] = 7
    assert suspect_labels(x, y, metric="euclidean") == []


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_near_duplicates_equal_a_loop(metric: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(data_problems.BLOCK, "cpu", 60 * 9)
    x, _ = clumps(7, 60, 5)
    x[50:55] = x[:5] * (1 if metric == "euclidean" else 3)
    x[20:23] = x[40:43] + 1e-3
    limit = 0.999 if metric == "cosine" else -1e-4

    def similar(a: Any, b: Any) -> float:
        if metric == "cosine":
            return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
        return -float(((a - b) ** 2).sum())

    within = {
        (i, j) for i, j in itertools.combinations(range(60), 2) if similar(x[i], x[j]) >= limit
    }
    found = near_duplicates(x, similarity=limit, metric=metric)
    assert {(one.first, one.second) for one in found} == within
    assert len(within) >= 8
    for one in found:
        assert one.similarity == pytest.approx(similar(x[one.first], x[one.second]), abs=1e-12)
    assert [one.similarity for one in found] == sorted((o.similarity for o in found), reverse=True)
    across = near_duplicates(x[:30], x[30:], similarity=limit, metric=metric)
    assert {(one.first, one.second + 30) for one in across} == {
        (i, j) for i, j in within if i < 30 <= j
    }


def test_too_many_duplicates_ask_for_a_higher_threshold() -> None:
    with pytest.raises(ValueError, match=r"at most 5 pairs, got more from 0\.5 on; raise it"):
        near_duplicates(np.ones((20, 2)), similarity=0.5, limit=5)


def test_confused_classes_equal_a_loop() -> None:
    x, y = clumps(8, 80, 6, pull=0.7)
    p = units(x)
    counts: dict[tuple[int, int], int] = {}
    for i in range(80):
        others = p @ p[i]
        others[i] = -9
        other = y[others.argmax()]
        if other != y[i]:
            pair = (min(other, y[i]), max(other, y[i]))
            counts[pair] = counts.get(pair, 0) + 1
    found = confused_classes(x, y, limit=100)
    assert {(one.first, one.second): one.mistakes for one in found} == counts
    assert [one.mistakes for one in found] == sorted(counts.values(), reverse=True)
    first = found[0]
    total = np.isin(y, [first.first, first.second]).sum()
    assert first.share == pytest.approx(first.mistakes / total)
    assert len(confused_classes(x, y, limit=2)) == 2


def test_nothing_is_confused_with_one_class_or_one_sample() -> None:
    assert confused_classes(np.eye(3), np.zeros(3, int)) == []
    assert confused_classes(np.eye(3)[:1], np.zeros(1, int)) == []


def test_hidden_groups_of_a_class_are_found() -> None:
    rng = np.random.default_rng(9)
    middles = 8 * np.eye(6)[:4]
    place = np.repeat([0, 1, 2, 3], 25)
    x = middles[place] + 0.3 * rng.standard_normal((100, 6))
    y = np.array(["two"] * 50 + ["one"] * 25 + ["single"] * 25)
    [found] = hidden_groups(x, y)
    assert found.label == "two"
    assert sorted(group.tolist() for group in found.groups) == [
        list(range(25)),
        list(range(25, 50)),
    ]


# --- hierarchy -----------------------------------------------------------------------------------


def test_merged_pairs_merge_each_class_with_one_other() -> None:
    y = np.array([3, 9, 4, 4, 7, 1, 9])
    merged = merged_pairs(y, seed=5)
    groups = {label: set(y[merged == label].tolist()) for label in np.unique(merged)}
    assert sorted(len(group) for group in groups.values()) == [1, 2, 2]
    assert set().union(*groups.values()) == set(y.tolist())
    assert (merged_pairs(y, seed=5) == merged).all()
    several = {tuple(merged_pairs(np.arange(10), seed=seed)) for seed in range(5)}
    assert len(several) > 1


def test_recovery_error_counts_on_the_true_classes() -> None:
    x, y = clumps(10, 120, 6, pull=3.0)
    good = recovery_error(x[:60], y[:60], x[60:], y[60:])
    assert good["knn"] < 0.3
    blind = (
        merged_pairs(y)[:, None] + 0.0 * x + np.random.default_rng(0).standard_normal(x.shape) / 99
    )
    bad = recovery_error(blind[:60], y[:60], blind[60:], y[60:])
    assert bad["knn"] > good["knn"]
    assert bad["nearest_mean"] > good["nearest_mean"]


# --- comparing -----------------------------------------------------------------------------------


def test_mean_and_spread() -> None:
    found = mean_and_spread([1.0, 2.0, 6.0])
    assert found["mean"] == 3
    assert found["spread"] == pytest.approx(math.sqrt(7))
    assert math.isnan(mean_and_spread([1.0])["spread"])
    with pytest.raises(ValueError, match="values: expected one or more finite numbers"):
        mean_and_spread([1.0, math.nan])


def test_seeds_are_compared_by_all_changes_of_sign() -> None:
    rng = np.random.default_rng(0)
    ours, theirs = rng.random(8) + 0.1, rng.random(8)
    expected = stats.permutation_test(
        (ours - theirs,), np.mean, permutation_type="samples", n_resamples=np.inf
    )
    found = compare_seeds(ours, theirs)
    assert found["p_value"] == pytest.approx(expected.pvalue, rel=1e-9)
    assert found["difference"] == pytest.approx((ours - theirs).mean())
    assert compare_seeds(ours, ours)["p_value"] == 1
    with pytest.raises(ValueError, match="as many values of each, got 8 and 7"):
        compare_seeds(ours, theirs[:7])


def test_queries_are_compared_by_class() -> None:
    """Differences that are one draw a class look significant query by query, and are not."""
    rng = np.random.default_rng(1)
    y = np.repeat(np.arange(10), 50)
    shift = rng.standard_normal(10)
    shift -= shift.mean() - 0.3 * shift.std()
    found = compare_queries(shift[y], np.zeros(500), y, samples=2000)
    alone = compare_queries(shift[y], np.zeros(500), np.arange(500), samples=2000)
    assert alone["p_value"] < 0.01 < 0.1 < found["p_value"]
    assert found["low"] < 0 < found["high"]
    sums = np.array([50 * value for value in shift])
    signs = np.array(list(itertools.product((1, -1), repeat=10)))
    exact = (abs(signs @ sums) >= abs(sums.sum()) * (1 - 1e-12)).mean()
    assert found["p_value"] == pytest.approx(exact)


def test_skipped_queries_are_left_out() -> None:
    ours = np.array([1.0, math.nan, 0.5, 1.0])
    theirs = np.array([0.5, 1.0, math.nan, 0.0])
    found = compare_queries(ours, theirs, np.array(list("abcd")), samples=10)
    assert found["count"] == 2
    assert found["difference"] == 0.75
    with pytest.raises(ValueError, match="three vectors of one length"):
        compare_queries(ours, theirs[:2], np.arange(4))


def test_the_p_value_is_uniform_without_a_difference() -> None:
    rng = np.random.default_rng(2)
    y = np.arange(60) // 3
    found = [
        compare_queries(rng.random(60), rng.random(60), y, samples=200)["p_value"]
        for _ in range(60)
    ]
    assert stats.kstest(found, "uniform").pvalue > 0.001


@pytest.mark.parametrize("classes", [4, 7, 40])
def test_the_interval_has_zero_if_and_only_if_the_p_value_is_large(classes: int) -> None:
    clear = 0
    for seed in range(25):
        rng = np.random.default_rng(seed)
        y = np.arange(80) % classes
        ours = rng.random(80) + rng.normal(0, 0.1, classes)[y] + 0.012 * seed
        found = compare_queries(ours, rng.random(80), y, samples=500)
        assert (found["p_value"] <= 0.05) == (not found["low"] <= 0 <= found["high"])
        assert found["low"] <= found["difference"] <= found["high"]
        assert found["groups"] == (classes if classes >= 6 else 80)
        clear += found["p_value"] <= 0.05
    assert 5 < clear < 25
