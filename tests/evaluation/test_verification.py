"""Verification and open sets against scikit-learn and loops over pairs."""

import itertools
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from kinspace.evaluation import (
    evaluate_threshold,
    open_set_metrics,
    open_set_threshold,
    roc_curve,
    verification,
    verification_metrics,
)


def clumps(seed: int, count: int, classes: int, dim: int = 6, pull: float = 1.0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, count)
    return pull * rng.standard_normal((classes, dim))[y] + rng.standard_normal((count, dim)), y


def scored(x: Any, y: Any, metric: str) -> tuple[Any, Any]:
    """Scores of all pairs and whether they are of one class, one by one."""
    scores, same = [], []
    for i, j in itertools.combinations(range(len(x)), 2):
        lengths = np.linalg.norm(x[i]) * np.linalg.norm(x[j])
        apart = -np.linalg.norm(x[i] - x[j])
        scores.append(x[i] @ x[j] / lengths if metric == "cosine" else apart)
        same.append(y[i] == y[j])
    return np.array(scores), np.array(same)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
@pytest.mark.parametrize("block", [16, 1024])
def test_rates_are_those_of_all_pairs(
    metric: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(verification.SIDE, "cpu", block)
    x, y = clumps(0, 90, 6)
    scores, same = scored(x, y, metric)
    roc = roc_curve(x, y, metric=metric)
    assert roc.same.sum() == same.sum()
    assert roc.different.sum() == (~same).sum()
    assert roc.auc == pytest.approx(roc_auc_score(same, scores), abs=1e-5)
    for wanted in (0.5, 0.1, 0.01, 0.0):
        threshold = roc.threshold_at(wanted)
        assert (scores[~same] >= threshold).mean() == pytest.approx(wanted, abs=1.5 / (~same).sum())
        assert (scores[~same] >= threshold).mean() <= wanted + 1e-12
        expected = (scores[same] >= threshold).mean()
        assert roc.tmr_at(wanted) == pytest.approx(expected, abs=1.5 / same.sum())
    thresholds = np.sort(scores)
    gaps = [(abs((scores[~same] >= t).mean() - (scores[same] < t).mean()), t) for t in thresholds]
    crossing = min(gaps)[1]
    around = [(scores[~same] >= crossing).mean(), (scores[same] < crossing).mean()]
    assert min(around) - 0.01 <= roc.eer <= max(around) + 0.01


def test_the_curve_goes_from_corner_to_corner_and_never_falls() -> None:
    x, y = clumps(1, 60, 5)
    fmr, tmr = roc_curve(x, y).curve(points=40)
    assert (fmr[0], tmr[0], fmr[-1], tmr[-1]) == (0, 0, 1, 1)
    assert (np.diff(fmr) >= 0).all()
    assert (np.diff(tmr) >= 0).all()
    assert 10 <= len(fmr) <= 42


def test_the_threshold_comes_from_other_classes() -> None:
    """With the report's classes changed the threshold stays, with the others' it does not."""
    x, y = clumps(2, 400, 16, pull=2.0)
    rng = np.random.default_rng(0)
    first = np.isin(y, rng.permutation(16)[:8])  # as drawn with seed 0
    whole = verification_metrics(x, y, fmr=0.01, samples=20)
    changed = x.copy()
    changed[~first] = rng.standard_normal(changed[~first].shape)
    other = verification_metrics(changed, y, fmr=0.01, samples=20)
    assert other["threshold"] == pytest.approx(whole["threshold"], abs=1e-5)
    assert other["tmr"] < whole["tmr"]
    scores, same = scored(x[~first], y[~first], "cosine")
    assert whole["tmr"] == pytest.approx((scores[same] >= whole["threshold"]).mean(), abs=1e-3)
    assert whole["fmr"] == pytest.approx((scores[~same] >= whole["threshold"]).mean(), abs=1e-3)
    assert whole["auc"] == pytest.approx(roc_auc_score(same, scores), abs=1e-5)


def test_intervals_hold_the_rate_of_new_classes_about_as_often_as_they_say() -> None:
    """The rates over many draws of classes from one distribution lie in most of the intervals."""
    found = []
    for seed in range(12):
        x, y = clumps(100 + seed, 240, 24, pull=2.0)
        found.append(verification_metrics(x, y, fmr=0.05, samples=200, seed=seed))
    typical = np.median([one["tmr"] for one in found])
    inside = sum(one["tmr_low"] <= typical <= one["tmr_high"] for one in found)
    assert inside >= 8
    widths = [one["tmr_high"] - one["tmr_low"] for one in found]
    assert 0.5 * np.std([one["tmr"] for one in found]) < np.mean(widths) / 4
    for one in found:
        assert one["tmr_low"] <= one["tmr"] <= one["tmr_high"]
        assert one["fmr_low"] <= one["fmr"] <= one["fmr_high"]


def test_bootstrapped_rates_are_those_of_the_drawn_classes() -> None:
    """One draw by hand: a class drawn twice counts twice, two classes as the product."""
    x, y = clumps(5, 60, 5, pull=2.0)
    drawn = verification_metrics(x, y, fmr=0.2, samples=1, seed=3)
    rest = ~np.isin(y, np.random.default_rng(3).permutation(5)[:2])
    labels = np.unique(y[rest])
    weights = np.bincount(np.random.default_rng(3).integers(0, 3, 3), minlength=3)
    of = dict(zip(labels.tolist(), weights.tolist(), strict=True))
    hits, total = {True: 0.0, False: 0.0}, {True: 0.0, False: 0.0}
    xs, ys = x[rest], y[rest]
    scores, _ = scored(xs, ys, "cosine")
    for (i, j), score in zip(itertools.combinations(range(len(xs)), 2), scores, strict=True):
        same = bool(ys[i] == ys[j])
        weight = of[ys[i]] if same else of[ys[i]] * of[ys[j]]
        total[same] += weight
        hits[same] += weight * (score >= drawn["threshold"])
    assert drawn["tmr_low"] == pytest.approx(hits[True] / total[True], rel=1e-6)
    if total[False]:
        assert drawn["fmr_low"] == pytest.approx(hits[False] / total[False], rel=1e-6)


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_a_threshold_is_judged_on_all_pairs_in_whatever_parts(
    metric: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = clumps(6, 70, 7)
    scores, same = scored(x, y, metric)
    threshold = float(np.quantile(scores, 0.6))
    whole, rates = evaluate_threshold(x, y, threshold, metric=metric, samples=30)
    assert rates["tmr"] == pytest.approx((scores[same] >= threshold).mean(), abs=1e-12)
    assert rates["fmr"] == pytest.approx((scores[~same] >= threshold).mean(), abs=1e-12)
    monkeypatch.setitem(verification.SIDE, "cpu", 9)
    monkeypatch.setattr(verification, "CELLS", 4)
    parts, same_rates = evaluate_threshold(x, y, threshold, metric=metric, samples=30)
    assert same_rates == pytest.approx(rates, rel=1e-12)
    assert parts.auc == pytest.approx(whole.auc, abs=1e-6)


def test_a_threshold_above_all_scores_accepts_nothing() -> None:
    x, y = clumps(7, 30, 3)
    _, rates = evaluate_threshold(x, y, 1.5, samples=10)
    assert set(rates.values()) == {0.0}


def test_bad_input_is_refused() -> None:
    x, y = clumps(3, 20, 3)
    with pytest.raises(ValueError, match="threshold"):
        evaluate_threshold(x, y, float("nan"))
    with pytest.raises(ValueError, match="at least 4 classes, two for each half, got 3"):
        verification_metrics(x, y)
    with pytest.raises(ValueError, match="expected pairs of one class, got none"):
        roc_curve(x, np.arange(20))
    with pytest.raises(ValueError, match="expected pairs of two classes, got none"):
        roc_curve(x, np.zeros(20, int))
    with pytest.raises(ValueError, match="fmr: expected a rate from 0 to 1"):
        roc_curve(x, y).tmr_at(2)


# --- open sets -----------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["cosine", "euclidean"])
def test_open_set_rates_equal_a_loop(metric: str) -> None:
    x, y = clumps(4, 160, 12, pull=2.0)
    gallery = np.flatnonzero((y < 6) & (np.arange(160) % 2 == 0))
    queries = np.setdiff1d(np.arange(160), gallery)
    calibration = queries[y[queries] >= 9]
    queries = queries[y[queries] < 9]
    threshold = open_set_threshold(x[calibration], x[gallery], false_alarms=0.2, metric=metric)

    def best(row: Any) -> tuple[float, int]:
        if metric == "cosine":
            values = x[gallery] @ row / np.linalg.norm(x[gallery], axis=1) / np.linalg.norm(row)
        else:
            values = -((x[gallery] - row) ** 2).sum(1)
        return values.max(), y[gallery][values.argmax()]

    alarms = np.mean([best(row)[0] >= threshold for row in x[calibration]])
    assert alarms <= 0.2
    assert alarms > 0.2 - 1.01 / len(calibration)
    found = open_set_metrics(
        x[queries], y[queries], x[gallery], y[gallery], threshold, metric=metric
    )
    scores = np.array([best(row)[0] for row in x[queries]])
    named = np.array([best(row)[1] for row in x[queries]])
    known, accepted = y[queries] < 6, scores >= threshold
    assert found["identified"] == pytest.approx((accepted & (named == y[queries]))[known].mean())
    assert found["misidentified"] == pytest.approx((accepted & (named != y[queries]))[known].mean())
    assert found["rejected"] == pytest.approx((~accepted)[known].mean())
    assert found["false_alarms"] == pytest.approx(accepted[~known].mean())
    assert found["auc"] == pytest.approx(roc_auc_score(known, scores), rel=1e-9)
    assert (found["known"], found["unknown"]) == (known.sum(), (~known).sum())


def test_an_open_set_without_unknown_classes_has_no_false_alarms_to_count() -> None:
    x = np.eye(3)
    found = open_set_metrics(x, np.arange(3), x, np.arange(3), 0.5)
    assert found["identified"] == 1
    assert np.isnan(found["false_alarms"])
    assert np.isnan(found["auc"])
    with pytest.raises(ValueError, match="false_alarms: expected a rate"):
        open_set_threshold(x, x, false_alarms=1.0)
