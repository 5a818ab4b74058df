"""Retrieval measures against loops, the worked cases, and themselves in other blocks and types."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from kinspace.embeddings import EmbeddingTable
from kinspace.evaluation import rank_counter, recall_at_k, retrieval_metrics
from kinspace.evaluation.retrieval import Retrieval

REFERENCE = Path(__file__).parents[1] / "fixtures" / "reference"
NAMES = ("recall@1", "recall@3", "precision@3", "map", "map@r", "r_precision")


def loop(
    x: NDArray[Any],
    y: NDArray[Any],
    metric: str,
    gallery: tuple[NDArray[Any], NDArray[Any]] | None = None,
) -> dict[str, list[float]]:
    """One query at a time, by the definitions, in float64; None is skipped."""
    x = np.asarray(x, np.float64)
    g, gy = (x, y) if gallery is None else (np.asarray(gallery[0], np.float64), gallery[1])
    found: dict[str, list[float]] = {name: [] for name in NAMES}
    for i in range(len(x)):
        similar = []
        for j in range(len(g)):
            if gallery is None and i == j:
                continue
            if metric == "euclidean":
                similar.append((((x[i] - g[j]) ** 2).sum(), j))
            else:
                lengths = np.sqrt((x[i] ** 2).sum()) * np.sqrt((g[j] ** 2).sum())
                similar.append((-(x[i] * g[j]).sum() / lengths if lengths else 0.0, j))
        hits = [gy[j] == y[i] for _, j in sorted(similar)]
        total = sum(hits)
        found["recall@1"].append(float(any(hits[:1])))
        found["recall@3"].append(float(any(hits[:3])))
        found["precision@3"].append(sum(hits[:3]) / 3)
        if total:
            precisions = [
                sum(hits[: n + 1]) / (n + 1) if hit else 0.0 for n, hit in enumerate(hits)
            ]
            found["map"].append(sum(precisions) / total)
            found["map@r"].append(sum(precisions[:total]) / total)
            found["r_precision"].append(sum(hits[:total]) / total)
    return found


def averages(found: dict[str, list[float]]) -> dict[str, float]:
    return {name: float(np.mean(values)) for name, values in found.items()}


def clumps(rng: np.random.Generator, count: int, classes: int, dim: int) -> tuple[Any, Any]:
    y = rng.integers(0, classes, count)
    x = rng.standard_normal((classes, dim))[y] + rng.standard_normal((count, dim))
    return x, y


def check(found: dict[str, float], expected: dict[str, float]) -> None:
    assert {name: found[name] for name in NAMES} == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize(("count", "classes"), [(60, 9), (90, 2), (7, 7), (40, 1)])
def test_equals_a_loop(metric: str, count: int, classes: int) -> None:
    x, y = clumps(np.random.default_rng(count), count, classes, 5)
    y[:1] = classes  # a singleton
    for dtype in (np.float64, np.float32):
        found = retrieval_metrics(x.astype(dtype), y, ks=(1, 3), metric=metric)
        expected = loop(x.astype(dtype), y, metric)
        if not expected["map"]:
            continue
        check(found, averages(expected))
        assert found["no_match"] == count - len(expected["map"])


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_equals_a_loop_with_a_gallery(metric: str) -> None:
    rng = np.random.default_rng(3)
    x, y = clumps(rng, 70, 6, 4)
    gallery = x[30:], y[30:] % 5  # class 5 is not in the gallery, and equal vectors are found
    found = retrieval_metrics(
        x[:40], y[:40], ks=(1, 3), metric=metric, gallery=gallery[0], gallery_labels=gallery[1]
    )
    expected = loop(x[:40], y[:40], metric, gallery)
    check(found, averages(expected))
    assert found["no_match"] == (y[:40] == 5).sum() > 0


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("many", [1, 1000])
def test_ties_go_to_the_lower_index(
    metric: str, many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a small grid most similarities occur many times; both ways of counting, both of deciding.

    Cosines of such vectors are rational multiples of roots: equal ones differ by rounding, in which
    the loop's order has no meaning, so they are compared on axis directions alone.
    """
    monkeypatch.setitem(rank_counter.SORTED, "cpu", many)
    rng = np.random.default_rng(5)
    x = rng.integers(-1, 2, (80, 3)).astype(np.float64)
    if metric == "cosine":
        x = np.eye(3)[rng.integers(0, 3, 80)] * rng.choice([-2.0, 1.0, 0.0, 4.0], (80, 1))
    y = rng.integers(0, 6, 80)
    expected = averages(loop(x, y, metric))
    for share in (1e9, 16, 1e-9):  # all in doubt decided as a whole, as usual, one by one
        monkeypatch.setattr(rank_counter, "DENSE", share)
        monkeypatch.setattr(rank_counter, "CROWDED", share)
        for dtype in (np.float32, np.float64):
            check(retrieval_metrics(x.astype(dtype), y, ks=(1, 3), metric=metric), expected)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_the_block_size_changes_nothing(metric: str) -> None:
    rng = np.random.default_rng(7)
    x, y = clumps(rng, 300, 40, 16)
    x[100:130] = x[:30]
    x[50:60] = 0
    retrieval = Retrieval(torch.from_numpy(x).float(), y, metric=metric)
    whole = retrieval.scores()
    check_like = {name: values.numpy() for name, values in whole.values.items()}
    for block in (40, 64, 128, 299, 5000):
        found = retrieval.scores(block=block)
        for name, values in found.values.items():
            np.testing.assert_array_equal(values.numpy(), check_like[name], f"{name}, {block}")
    parts = [retrieval.scores(queries=range(a, b)) for a, b in ((0, 0), (0, 113), (113, 300))]
    for name, expected in check_like.items():
        joined = torch.cat([part.values[name] for part in parts])
        np.testing.assert_array_equal(joined.numpy(), expected)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_float32_decides_as_float64_does_on_the_same_numbers(metric: str) -> None:
    """Many vectors on few directions, nearer to each other than float32 products can tell."""
    rng = np.random.default_rng(8)
    x = rng.standard_normal((150, 32)) * 1e-4 + rng.standard_normal((5, 32))[np.arange(150) % 5]
    x = x.astype(np.float32)
    y = rng.integers(0, 30, 150)
    found = retrieval_metrics(x, y, ks=(1, 3), metric=metric)
    assert found == retrieval_metrics(x.astype(np.float64), y, ks=(1, 3), metric=metric)
    check(found, averages(loop(x, y, metric)))


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("scale", [1e-150, 1e-30, 1e30, 1e150])
def test_the_scale_changes_nothing(metric: str, scale: float) -> None:
    x, y = clumps(np.random.default_rng(9), 50, 6, 4)
    expected = retrieval_metrics(x, y, metric=metric)
    assert retrieval_metrics(x * scale, y, metric=metric) == expected
    if 1e-40 < scale < 1e40:
        small = retrieval_metrics((x * scale).astype(np.float32), y, metric=metric)
        assert small == pytest.approx(expected, rel=1e-12)


def test_an_outlier_does_not_blur_the_others() -> None:
    x, y = clumps(np.random.default_rng(10), 80, 8, 6)
    x[17] *= 1e9
    found = retrieval_metrics(x.astype(np.float32), y, ks=(1, 3), metric="euclidean")
    check(found, averages(loop(x.astype(np.float32), y, "euclidean")))


def test_precision_that_the_user_lowered_is_counted_with() -> None:
    x, y = clumps(np.random.default_rng(11), 200, 20, 16)
    expected = retrieval_metrics(x.astype(np.float32), y)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        assert retrieval_metrics(x.astype(np.float32), y) == expected
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert retrieval_metrics(x.astype(np.float32), y) == expected
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("number", [0, 1])
def test_equals_the_worked_cases(number: int) -> None:
    with np.load(REFERENCE / f"retrieval_metrics__{number:03}.npz") as case:
        params = json.loads(str(case["meta"]))["params"]
        metric = {"l2": "euclidean", "cos": "cosine"}[params["metric"]]
        x, y, ks = case["in_X"], case["in_y"], params["ks"]
        found = retrieval_metrics(x, y, ks=ks, metric=metric)
        assert [found[f"recall@{k}"] for k in ks] == pytest.approx(case["out_recall"], rel=1e-9)
        assert found["map"] == pytest.approx(float(case["out_map"]), rel=1e-9)
        assert found["map@r"] == pytest.approx(float(case["out_map_at_r"]), rel=1e-9)
        assert found["r_precision"] == pytest.approx(float(case["out_r_precision"]), rel=1e-9)
        recalls = recall_at_k(x, y, ks, metric=metric)
        assert list(recalls.values()) == pytest.approx(case["out_recall"], rel=1e-9)


@pytest.mark.parametrize(("rows", "columns"), [(8, 8), (5, 24), (256, 1024), (16, 3072)])
def test_all_ways_of_counting_count_alike(rows: int, columns: int) -> None:
    generator = torch.Generator().manual_seed(rows)
    table = torch.randint(-3, 4, (rows, columns), generator=generator).float()
    table[:, -1] = -torch.inf
    thresholds = torch.randint(-3, 4, (rows, 3), generator=generator).float()
    thresholds[0, 0] = torch.inf
    above = (table[:, :, None] > thresholds[:, None]).sum(1)
    at_least = (table[:, :, None] >= thresholds[:, None]).sum(1)
    mask = torch.empty(table.shape, dtype=torch.bool)
    before = torch.get_num_threads()
    with ThreadPoolExecutor(2) as pool:
        found = [rank_counter.count_above(table, thresholds, thresholds, mask)]
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(rank_counter.count_above_numpy(table, thresholds, thresholds, mask, pool))
        torch.set_num_threads(before)
    for ours, theirs in found:
        assert torch.equal(ours, above)
        assert torch.equal(theirs, at_least)


def test_vectors_all_equal_rank_by_index() -> None:
    y = np.array([0, 1, 0, 1, 1])
    for metric in ("cosine", "euclidean"):
        for x in (np.ones((5, 3)), np.zeros((5, 3))):
            found = retrieval_metrics(x, y, ks=(1, 3), metric=metric)
            check(found, averages(loop(x, y, metric)))


def test_one_class_and_only_singletons() -> None:
    x = np.random.default_rng(1).standard_normal((6, 3))
    everything = retrieval_metrics(x, np.zeros(6, int))
    assert everything["map"] == everything["recall@1"] == everything["r_precision"] == 1
    nothing = retrieval_metrics(x, np.arange(6))
    assert nothing["recall@8"] == nothing["precision@1"] == 0
    assert np.isnan(nothing["map"])
    assert nothing["no_match"] == nothing["queries"] == 6
    alone = retrieval_metrics(x[:1], np.zeros(1, int))
    assert alone["recall@1"] == 0


def test_a_table_an_array_a_tensor_and_words_give_the_same() -> None:
    x, y = clumps(np.random.default_rng(2), 30, 5, 4)
    expected = recall_at_k(x, y, [1, 2])
    assert recall_at_k(torch.from_numpy(x), torch.from_numpy(y), [1, 2]) == expected
    assert recall_at_k(EmbeddingTable(x, y), None, [1, 2]) == expected
    assert recall_at_k(EmbeddingTable(x), y, [1, 2]) == expected
    assert recall_at_k(x, np.array(["moth", "bee", "ant", "fly", "bug"])[y], [1, 2]) == expected
    assert recall_at_k(x, y - 7, [1, 2]) == expected
    x.flags.writeable = y.flags.writeable = False
    assert recall_at_k(x, y, [1, 2]) == expected
    assert recall_at_k(x[::-1], y[::-1], [1, 2]) == expected


def test_scores_by_class_and_by_attribute() -> None:
    x, y = clumps(np.random.default_rng(4), 40, 4, 3)
    scores = Retrieval(x, y).scores((1,))
    groups = scores.by_group(y)
    one = scores.values["recall@1"].numpy()
    for label in range(4):
        assert groups[label]["recall@1"] == pytest.approx(one[y == label].mean(), rel=1e-12)
        assert groups[label]["queries"] == (y == label).sum()
    attributes = (np.arange(80).reshape(40, 2) % 3 == 0).astype(float)
    found = scores.by_attribute(attributes, ("spots", "stripes"))
    for column, name in enumerate(("spots", "stripes")):
        having = attributes[:, column] == 1
        assert found[name]["recall@1"] == pytest.approx(one[having].mean(), rel=1e-12)
    with pytest.raises(ValueError, match=r"groups: expected shape \(40,\)"):
        scores.by_group(y[:3])
    with pytest.raises(ValueError, match="attributes: expected one row for each of 40 queries"):
        scores.by_attribute(attributes[:3])


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x, y: retrieval_metrics(x * np.nan, y), r"NaN or infinity in 4 of 4 rows"),
        (lambda x, y: retrieval_metrics(x.astype(str), y), "vectors: expected numbers, got <U"),
        (lambda x, y: retrieval_metrics(x.astype(object), y), "expected numbers, got object"),
        (lambda x, y: retrieval_metrics(x * 1j, y), "expected numbers, got complex128"),
        (lambda x, y: retrieval_metrics(torch.from_numpy(x * 1j), y), "expected real numbers"),
        (lambda x, y: retrieval_metrics(x, y[:3]), r"labels: expected shape \(4,\)"),
        (lambda x, y: retrieval_metrics(x[:0], y[:0]), "at least one row"),
        (lambda x, y: retrieval_metrics(x, None), "labels: expected one for each vector, got None"),
        (lambda x, y: retrieval_metrics(x, y + 0.5), "expected integers or strings, got float64"),
        (lambda x, y: retrieval_metrics(x, y, metric="l2"), "metric: expected one of 'cosine'"),
        (lambda x, y: retrieval_metrics(x, y, ks=(0,)), "ks: expected at least 1, got 0"),
        (
            lambda x, y: retrieval_metrics(x, y, gallery=x[:, :1], gallery_labels=y),
            "gallery: expected 2 columns",
        ),
        (lambda x, y: retrieval_metrics(x, y, gallery_labels=y), "expected a gallery with them"),
        (
            lambda x, y: retrieval_metrics(x, y, gallery=x, gallery_labels=y.astype(str)),
            "both as integers or both as strings",
        ),
        (
            lambda x, y: Retrieval(x, y).scores(queries=range(2, 9)),
            "expected a range within 0 .. 4",
        ),
    ],
)
def test_bad_input_is_refused(call: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        call(np.eye(4)[:, :2], np.array([0, 0, 1, 1]))
