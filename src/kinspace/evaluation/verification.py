"""Verification: whether two pictures are of the same class.

A pair is accepted if its score is at least a threshold. All pairs are scored
(`kinspace.evaluation.pair_scores`); `kinspace.evaluation.roc` defines the rates. A threshold must
be tested on classes it was not chosen on: `verification_metrics` chooses it on half of the classes
and reports the rates on the other half.

Confidence intervals resample classes with replacement. A pair within a class counts as often as its
class was drawn; a pair of two classes counts the product of both.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from kinspace._core import checks
from kinspace.evaluation.metric_inputs import Labels, Vectors, with_labels
from kinspace.evaluation.pair_scores import Accepted, PairScores
from kinspace.evaluation.roc import Roc

__all__ = ["Roc", "evaluate_threshold", "roc_curve", "verification_metrics"]


def roc_curve(
    vectors: Vectors,
    labels: Labels = None,
    *,
    metric: str = "cosine",
    device: str | torch.device | None = None,
) -> Roc:
    """The ROC of all pairs.

    >>> x = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> roc = roc_curve(x, np.array([0, 0, 1, 1]))
    >>> roc.auc, roc.eer, roc.tmr_at(0.0)
    (1.0, 0.0, 1.0)
    """
    return PairScores(*with_labels(vectors, labels, device=device), metric).count()[0]


def evaluate_threshold(
    vectors: Vectors,
    labels: Labels,
    threshold: float,
    *,
    metric: str = "cosine",
    samples: int = 1000,
    seed: int = 0,
    device: str | torch.device | None = None,
) -> tuple[Roc, dict[str, float]]:
    """The ROC of these classes, and their tmr and fmr at a threshold chosen on other classes.

    tmr_low, tmr_high, fmr_low and fmr_high are 95 % intervals from `samples` resamples of classes.

    >>> x = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.5, 1.0]])
    >>> roc, rates = evaluate_threshold(x, np.array([0, 0, 1, 1]), 0.95)
    >>> rates["tmr"], rates["fmr"]
    (0.5, 0.0)
    """
    checks.integer("samples", samples, at_least=1)
    checks.number("threshold", threshold)
    scores = PairScores(*with_labels(vectors, labels, device=device), metric)
    roc, accepted = scores.count(threshold)
    rng = np.random.default_rng(seed)
    return roc, _with_intervals(accepted, scores.class_sizes.astype(np.float64), samples, rng)


def _with_intervals(
    accepted: Accepted, sizes: NDArray[np.float64], samples: int, rng: np.random.Generator
) -> dict[str, float]:
    count = len(sizes)
    within = accepted.first == accepted.second
    own = np.zeros(count)
    own[accepted.first[within]] = accepted.pairs[within]
    first, second = accepted.first[~within], accepted.second[~within]
    crossed = accepted.pairs[~within]

    def rates(weights: NDArray[np.float64]) -> tuple[float, float]:
        matches = (weights * sizes * (sizes - 1) / 2).sum()
        total = weights * sizes
        others = (total.sum() ** 2 - (total**2).sum()) / 2
        false = (weights[first] * crossed) @ weights[second]
        return (
            float((weights * own).sum() / matches) if matches else np.nan,
            float(false / others) if others else np.nan,
        )

    tmr, fmr = rates(np.ones(count))
    draws = [
        rates(np.bincount(rng.integers(0, count, count), minlength=count).astype(np.float64))
        for _ in range(samples)
    ]
    (tmr_low, fmr_low), (tmr_high, fmr_high) = np.nanquantile(draws, [0.025, 0.975], axis=0)
    return {
        "tmr": tmr,
        "tmr_low": float(tmr_low),
        "tmr_high": float(tmr_high),
        "fmr": fmr,
        "fmr_low": float(fmr_low),
        "fmr_high": float(fmr_high),
    }


def verification_metrics(
    vectors: Vectors,
    labels: Labels = None,
    *,
    fmr: float = 1e-3,
    metric: str = "cosine",
    samples: int = 1000,
    seed: int = 0,
    device: str | torch.device | None = None,
) -> dict[str, float]:
    """Choose a threshold on a random half of the classes and report its rates on the other half.

    threshold: the lowest with false-match rate `fmr` on the first half. tmr, fmr: the rates at it
    on the second, with 95 % intervals (tmr_low, tmr_high, ...) from `samples` resamples of
    classes. auc, eer: on the second half.

    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(80) % 8
    >>> x = 4 * rng.standard_normal((8, 8))[y] + rng.standard_normal((80, 8))
    >>> found = verification_metrics(x, y, fmr=0.01, samples=100)
    >>> found["tmr"] > 0.8, found["tmr_low"] <= found["tmr"] <= found["tmr_high"]
    (True, True)
    """
    tensor, classes = with_labels(vectors, labels, device=device)
    count = int(classes.max()) + 1
    if count < 4:
        raise ValueError(f"labels: expected at least 4 classes, two for each half, got {count}")
    drawn = torch.from_numpy(np.random.default_rng(seed).permutation(count)[: count // 2])
    first = torch.zeros(count, dtype=torch.bool, device=tensor.device)
    first[drawn.to(tensor.device)] = True
    chosen = first[classes]
    threshold = roc_curve(tensor[chosen], classes[chosen], metric=metric).threshold_at(fmr)
    roc, rates = evaluate_threshold(
        tensor[~chosen], classes[~chosen], threshold, metric=metric, samples=samples, seed=seed
    )
    return {"threshold": threshold, "auc": roc.auc, "eer": roc.eer, **rates}
