"""MRR, MAP@k, NDCG, cumulative match, larger galleries, graded relevance, and update/compute."""

import numpy as np
import pytest
import torch

from kinspace.evaluation import (
    RetrievalMetrics,
    cumulative_match,
    graded_metrics,
    recall_at_k,
    retrieval_metrics,
)
from kinspace.evaluation.retrieval import Retrieval

MORE = ("mrr", "map@k", "ndcg@k", "ndcg")
KS = (1, 5, 100)


def data(count: int = 60, classes: int = 9) -> tuple[torch.Tensor, torch.Tensor]:
    rng = np.random.default_rng(3)
    y = rng.integers(0, classes, count)
    y[0] = classes  # alone in its class
    x = rng.standard_normal((classes + 1, 5))[y] + rng.standard_normal((count, 5))
    return torch.from_numpy(x), torch.from_numpy(y)


def hits_in_order(x: torch.Tensor, y: torch.Tensor) -> list[np.ndarray]:
    """For each query whether each other item, nearest first, is of its class."""
    unit = x / x.norm(dim=1, keepdim=True)
    table = (unit @ unit.T).numpy()
    found = []
    for i in range(len(x)):
        others = [j for j in range(len(x)) if j != i]
        others.sort(key=lambda j: (-table[i, j], j))
        found.append(np.array([int(y[j] == y[i]) for j in others]))
    return found


def test_the_further_measures_equal_loops() -> None:
    x, y = data()
    found = retrieval_metrics(x, y, ks=KS, more=MORE)
    matched = [hits for hits in hits_in_order(x, y) if hits.any()]
    ranks = [np.flatnonzero(hits) + 1 for hits in matched]
    assert found["mrr"] == pytest.approx(np.mean([1 / each[0] for each in ranks]))
    for k in KS:
        precision = [
            sum((i + 1) / r for i, r in enumerate(each) if r <= k) / min(len(each), k)
            for each in ranks
        ]
        assert found[f"map@{k}"] == pytest.approx(np.mean(precision))
        gained = [sum(1 / np.log2(1 + r) for r in each if r <= k) for each in ranks]
        best = [sum(1 / np.log2(1 + i) for i in range(1, min(len(e), k) + 1)) for e in ranks]
        assert found[f"ndcg@{k}"] == pytest.approx(np.mean(np.divide(gained, best)))
    assert found["ndcg"] == pytest.approx(found["ndcg@100"])
    assert found["map@100"] == pytest.approx(found["map"])


def test_they_are_not_defined_without_a_match() -> None:
    found = retrieval_metrics(torch.eye(3), torch.arange(3), ks=(1,), more=MORE)
    assert all(np.isnan(found[name]) for name in ("mrr", "map@1", "ndcg@1", "ndcg"))


def test_an_unknown_further_measure_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"more: expected one of 'mrr', 'map@k'.*got 'mmr'"):
        retrieval_metrics(*data(), more=("mmr",))


def test_the_cumulative_match_is_recall_at_each_rank() -> None:
    x, y = data()
    curve = cumulative_match(x, y, ranks=6)
    assert curve.tolist() == list(recall_at_k(x, y, range(1, 7)).values())
    assert (np.diff(curve) >= 0).all()


def test_queries_in_a_larger_gallery_are_left_out_of_their_own_ranking() -> None:
    x, y = data()
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    some = torch.tensor([4, 0, 17, 59, 8])
    rows = order.argsort()[some]
    whole = Retrieval(x, y).scores(KS, more=MORE).select(some.numpy()).summary()
    found = retrieval_metrics(
        x[some],
        y[some],
        ks=KS,
        more=MORE,
        gallery=x[order],
        gallery_labels=y[order],
        rows_in_gallery=rows,
    )
    assert found == pytest.approx(whole)


def test_a_query_outside_of_the_gallery_is_compared_with_all_of_it() -> None:
    x, y = data()
    plain = retrieval_metrics(x[:5], y[:5], gallery=x[5:], gallery_labels=y[5:])
    rows = torch.full((5,), -1)
    found = retrieval_metrics(
        x[:5], y[:5], gallery=x[5:], gallery_labels=y[5:], rows_in_gallery=rows
    )
    assert found == plain


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([0, 1], r"whole numbers of shape \(3,\)"),
        ([0, 1, 60], "a row of the gallery below 60"),
        ([0, 1, 1], "row 1 for query 2, which has another label"),
    ],
)
def test_wrong_rows_of_the_gallery_are_an_error(rows: list[int], words: str) -> None:
    x, y = data()
    y[:3] = torch.tensor([0, 1, 2])
    with pytest.raises(ValueError, match=words):
        Retrieval(x[:3], y[:3], gallery=x, gallery_labels=y, rows_in_gallery=torch.tensor(rows))


def test_labels_of_one_class_each_give_the_usual_measures() -> None:
    x, y = data()
    several = torch.nn.functional.one_hot(y)
    usual = retrieval_metrics(x, y, ks=KS, more=MORE)
    for metric in ("cosine", "euclidean"):
        usual = retrieval_metrics(x, y, ks=KS, more=MORE, metric=metric)
        found = graded_metrics(x, several, ks=KS, metric=metric)
        assert found == pytest.approx({name: usual[name] for name in found})


def test_grades_equal_a_loop() -> None:
    rng = np.random.default_rng(1)
    x, g = rng.standard_normal((12, 4)), rng.standard_normal((30, 4))
    relevance = rng.integers(0, 4, (12, 30)).astype(float)
    found = graded_metrics(
        x, relevance=torch.from_numpy(relevance), gallery=g, ks=(3,), gain="exponential"
    )
    x, g = (each / np.linalg.norm(each, axis=1, keepdims=True) for each in (x, g))
    values = []
    for i in range(12):
        order = np.argsort(-(g @ x[i]), kind="stable")
        weight = 1 / np.log2(np.arange(2, 5))
        gained = ((2 ** relevance[i][order][:3] - 1) * weight).sum()
        best = ((2 ** np.sort(relevance[i])[::-1][:3] - 1) * weight).sum()
        values.append(gained / best)
    assert found["ndcg@3"] == pytest.approx(np.mean(values))


def test_labels_that_are_no_matrix_are_an_error() -> None:
    x, y = data()
    with pytest.raises(ValueError, match="labels: expected a 0/1 matrix with a row for each of 60"):
        graded_metrics(x, y)
    with pytest.raises(ValueError, match="got both or none"):
        graded_metrics(x)


def test_batches_give_the_measures_of_the_whole() -> None:
    x, y = data()
    measure = RetrievalMetrics(ks=KS, more=MORE)
    for _ in range(2):  # reset forgets
        measure.reset()
        for rows in torch.arange(60).split(7):
            measure.update(x[rows], y[rows])
        assert measure.compute() == retrieval_metrics(x, y, ks=KS, more=MORE)


def test_samples_that_come_twice_count_once_by_their_ids() -> None:
    x, y = data()
    measure = RetrievalMetrics(ks=(1,))
    for rows in (torch.arange(40), torch.arange(30, 60)):
        measure.update(x[rows], y[rows], ids=rows)
    assert measure.compute() == retrieval_metrics(x, y, ks=(1,))


def test_queries_and_gallery_may_come_in_batches_of_their_own() -> None:
    x, y = data()
    measure = RetrievalMetrics(ks=(1,))
    measure.update(x[:20], y[:20], role="query")
    measure.update(x[20:], y[20:], role="gallery")
    plain = retrieval_metrics(x[:20], y[:20], gallery=x[20:], gallery_labels=y[20:], ks=(1,))
    assert measure.compute() == plain


def test_nothing_to_compute_is_an_error() -> None:
    with pytest.raises(ValueError, match="expected one batch or more by `update`, got none"):
        RetrievalMetrics().compute()


def test_values_are_those_of_torchmetrics() -> None:
    theirs = pytest.importorskip("torchmetrics.functional.retrieval")
    x, y = data()
    unit = x / x.norm(dim=1, keepdim=True)
    table = 2 + unit @ unit.T  # there a match of similarity 0 or less is none
    expected: dict[str, list[float]] = {"mrr": [], "map": [], "ndcg@5": [], "precision@5": []}
    for i in range(1, len(x)):
        others = torch.arange(len(x)) != i
        given = table[i][others], (y == y[i])[others]
        expected["mrr"].append(float(theirs.retrieval_reciprocal_rank(*given)))
        expected["map"].append(float(theirs.retrieval_average_precision(*given)))
        expected["ndcg@5"].append(float(theirs.retrieval_normalized_dcg(*given, top_k=5)))
        expected["precision@5"].append(float(theirs.retrieval_precision(*given, top_k=5)))
    scores = Retrieval(x, y).scores((5,), more=MORE).select(np.arange(1, len(x))).summary()
    for name, values in expected.items():
        assert scores[name] == pytest.approx(np.mean(values), abs=1e-6)
