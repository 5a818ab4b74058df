"""Neighbors, classifiers and attribute precision against loops and the worked cases."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from kinspace.embeddings import EmbeddingTable
from kinspace.evaluation import (
    attribute_precision,
    attribute_precision_each,
    classification,
    confusion_counts,
    error_rate,
    knc_predict,
    knc_scores,
    knn_predict,
    nearest_mean_predict,
    similarity,
    soft_knn_predict,
)
from kinspace.evaluation.similarity import nearest

REFERENCE = Path(__file__).parents[1] / "fixtures" / "reference"


def order_of(x: Any, g: Any, metric: str) -> list[tuple[float, int]]:
    x, g = np.asarray(x, np.float64), np.asarray(g, np.float64)
    if metric == "euclidean":
        return sorted((((x - row) ** 2).sum(), j) for j, row in enumerate(g))
    lengths = [np.sqrt((x**2).sum() * (row**2).sum()) for row in g]
    return sorted(
        (-(x * row).sum() / n if n else 0.0, j)
        for j, (row, n) in enumerate(zip(g, lengths, strict=True))
    )


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("k", [1, 5, 70])
def test_the_nearest_are_those_of_a_loop(
    metric: str, dtype: Any, k: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(similarity.BLOCK, "cpu", 60 * 7)
    rng = np.random.default_rng(0)
    x = (
        rng.standard_normal((60, 6)) * 1e-4 + rng.standard_normal((3, 6))[np.arange(60) % 3]
    ).astype(dtype)
    values, index = nearest(torch.from_numpy(x), k, metric=metric)
    assert index.shape == values.shape == (60, min(k, 59))
    for i in range(60):
        expected = [j for _, j in order_of(x[i], x, metric) if j != i]
        assert index[i].tolist() == expected[:k]
    values, index = nearest(torch.from_numpy(x[:4]), k, gallery=torch.from_numpy(x), metric=metric)
    for i in range(4):
        expected = order_of(x[i], x, metric)[:k]
        assert index[i].tolist() == [j for _, j in expected]
        np.testing.assert_allclose(values[i], [-d for d, _ in expected], rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_the_nearest_of_many_are_those_of_a_loop(
    metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(similarity, "GROUP", 4)  # 75 groups of 301 columns, and one column more
    x = np.random.default_rng(1).standard_normal((301, 5))
    x[300] = x[7]
    _, index = nearest(torch.from_numpy(x), 3, metric=metric)
    for i in range(0, 301, 7):
        expected = [j for _, j in order_of(x[i], x, metric) if j != i]
        assert index[i].tolist() == expected[:3]
    assert index[7, 0] == 300


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("x", [torch.ones(40, 3), torch.zeros(40, 3)])
def test_equal_vectors_are_found_by_index(metric: str, x: torch.Tensor) -> None:
    _, index = nearest(x, 3, metric=metric)
    assert index[0].tolist() == [1, 2, 3]
    assert index[1].tolist() == [0, 2, 3]
    assert index[30].tolist() == [0, 1, 2]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_knc_equals_the_worked_cases(number: int) -> None:
    with np.load(REFERENCE / f"knc__{number:03}.npz") as case:
        params = json.loads(str(case["meta"]))["params"]
        inputs = case["in_R"], case["in_mu"], case["in_cluster_class"], params["var"]
        found = knc_predict(*inputs, nearest=params["L"])
        assert found.tolist() == case["out_pred"].tolist()
        scores, classes = knc_scores(*inputs, nearest=params["L"])
        assert classes.tolist() == list(range(params["n_classes"]))
        np.testing.assert_allclose(scores, case["out_scores"], rtol=1e-9, atol=1e-12)


def test_knc_with_no_variance_and_far_away() -> None:
    centers, labels = np.array([[0.0], [1.0], [5.0]]), np.array(["b", "a", "a"])
    assert knc_predict(np.array([[0.4], [0.6]]), centers, labels, 0.0).tolist() == ["b", "a"]
    assert knc_predict(np.array([[0.5]]), centers, labels, 0.0).tolist() == ["a"]  # equal: lower
    assert knc_predict(np.array([[1e6]]), centers, labels, 1e-9).tolist() == ["a"]
    with pytest.raises(ValueError, match="variance: expected at least 0"):
        knc_predict(centers, centers, labels, -1.0)
    with pytest.raises(ValueError, match=r"center_labels: expected shape \(3,\)"):
        knc_predict(centers, centers, labels[:2], 1.0)
    with pytest.raises(ValueError, match="center: expected 1 columns"):
        knc_predict(centers, np.ones((3, 2)), labels, 1.0)


def vote(rows: list[tuple[float, int]], y: Any, weight: Callable[[float], float]) -> int:
    totals: dict[int, float] = {}
    for d, j in rows:
        totals[y[j]] = totals.get(y[j], 0.0) + weight(d)
    return min(totals, key=lambda label: (-round(totals[label], 12), label))


def test_knc_is_the_same_in_whatever_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    x, centers, labels = (
        rng.standard_normal((50, 4)),
        rng.standard_normal((30, 4)),
        np.arange(30) % 6,
    )
    whole, classes = knc_scores(x, centers, labels, 0.5, nearest=7)
    predicted = knc_predict(x, centers, labels, 0.5, nearest=7)
    monkeypatch.setattr(classification, "BLOCK", 20)
    monkeypatch.setitem(similarity.BLOCK, "cpu", 90)
    parts, _ = knc_scores(x, centers, labels, 0.5, nearest=7)
    assert torch.equal(whole, parts)
    np.testing.assert_array_equal(classes[whole.argmax(1).numpy()], predicted)
    np.testing.assert_array_equal(knc_predict(x, centers, labels, 0.5, nearest=7), predicted)


def test_knn_and_soft_knn_equal_a_loop() -> None:
    rng = np.random.default_rng(1)
    g, y = rng.standard_normal((50, 4)), rng.integers(0, 4, 50)
    x = rng.standard_normal((30, 4))
    for k in (1, 2, 5, 80):
        near = [order_of(row, g, "euclidean")[:k] for row in x]
        hard = knn_predict(x, g, y, k=k, metric="euclidean")
        assert hard.tolist() == [vote(rows, y, lambda d: 1.0) for rows in near]
        soft = soft_knn_predict(x, g, y, 0.7, k=k)
        expected = [vote(rows, y, lambda d: math.exp(-d / 1.4)) for rows in near]
        assert soft.tolist() == expected
    itself = knn_predict(g, None, y, k=3, metric="euclidean")
    near = [[row for row in order_of(g[i], g, "euclidean") if row[1] != i][:3] for i in range(50)]
    assert itself.tolist() == [vote(rows, y, lambda d: 1.0) for rows in near]
    with pytest.raises(ValueError, match="expected at least two"):
        knn_predict(g[:1], None, y[:1])


def test_nearest_mean_equals_a_loop() -> None:
    rng = np.random.default_rng(2)
    g, y = rng.standard_normal((40, 3)), rng.integers(0, 5, 40) * 3
    x = rng.standard_normal((20, 3))
    labels = np.unique(y)
    means = np.stack([g[y == label].mean(0) for label in labels])
    expected = labels[((x[:, None] - means) ** 2).sum(2).argmin(1)]
    assert nearest_mean_predict(x, g, y, metric="euclidean").tolist() == expected.tolist()
    units = g / np.linalg.norm(g, axis=1, keepdims=True)
    means = np.stack([units[y == label].mean(0) for label in labels])
    cosines = (x @ means.T) / np.linalg.norm(means, axis=1)
    assert nearest_mean_predict(x, g, y).tolist() == labels[cosines.argmax(1)].tolist()


def test_error_and_confusions() -> None:
    y, found = np.array(["a", "a", "b", "c"]), np.array(["a", "b", "b", "b"])
    assert error_rate(y, found) == 0.5
    assert confusion_counts(y, found) == {
        ("a", "a"): 1,
        ("a", "b"): 1,
        ("b", "b"): 1,
        ("c", "b"): 1,
    }
    with pytest.raises(ValueError, match="predicted: expected shape"):
        error_rate(y, found[:2])
    with pytest.raises(ValueError, match="got none"):
        error_rate(y[:0], found[:0])


@pytest.mark.parametrize("number", [0, 1])
def test_attribute_precision_equals_the_worked_cases(number: int) -> None:
    with np.load(REFERENCE / f"attribute_precision__{number:03}.npz") as case:
        sizes = json.loads(str(case["meta"]))["params"]["sizes"]
        x, a = case["in_X"], case["in_A"]
        found = attribute_precision(x, a, sizes)
        assert list(found) == sizes
        assert list(found.values()) == pytest.approx(case["out_precision"], rel=1e-9)
        table = EmbeddingTable(x, attributes=a, attribute_names=tuple("abcde"))
        assert attribute_precision(table, None, sizes) == pytest.approx(found)
        each = attribute_precision_each(table, None, sizes)
        had = a.sum(0)
        for size in sizes:
            whole = sum(each[n][size] * had[i] for i, n in enumerate("abcde") if had[i]) / had.sum()
            assert whole == pytest.approx(found[size], rel=1e-12)


def test_attribute_precision_cuts_the_size_and_skips_what_nobody_has() -> None:
    x, a = np.array([[0.0], [1.0], [3.0]]), np.array([[1, 0], [0, 0], [1, 0]])
    x.flags.writeable = a.flags.writeable = False
    assert attribute_precision(x, a, [2, 50]) == {2: 0.5, 50: 0.5}
    assert math.isnan(attribute_precision(x, 0 * a, [1])[1])
    with pytest.raises(ValueError, match="one row for each of 3 vectors"):
        attribute_precision(x, a[:2], [1])
    with pytest.raises(ValueError, match="sizes: expected at least 1"):
        attribute_precision(x, a, [0])
    with pytest.raises(ValueError, match="expected at least two"):
        attribute_precision(x[:1], a[:1], [1])
