"""Measures that split the data first, so that nothing is tested on what it was fitted to.

    classification   half of the samples of each class classify the other half
    verification     a threshold chosen on some classes is tested on others
    open set         half of the classes are in the gallery; queries of the others must be rejected

The splits are random with the given seed. Where the data cannot be split, the result is None and a
note says why.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kinspace._core.vectors import unit
from kinspace.clustering.kmeans import class_kmeans
from kinspace.evaluation.classification import (
    confusion_counts,
    error_rate,
    knc_predict,
    knn_predict,
    nearest_mean_predict,
    soft_knn_predict,
)
from kinspace.evaluation.open_set import open_set_metrics, open_set_threshold
from kinspace.evaluation.verification import evaluate_threshold, roc_curve

__all__ = ["classification", "halves", "open_set", "verification"]

Labels = NDArray[np.int64]
Part = tuple[Tensor, Labels]  # vectors and their classes
CLUSTERS = 3  # per class for kNC, as in the Magnet paper
LISTED = 50  # confusions
MOST_QUERIES = 5000  # that are classified; of more, a random sample


def halves(labels: Labels, *, seed: int = 0) -> tuple[Labels, Labels]:
    """Indices of a random half of each class, the larger of an odd number, and of the other half.

    >>> reference, queries = halves(np.array([0, 0, 0, 1]), seed=0)
    >>> np.bincount(np.array([0, 0, 0, 1])[reference]), len(queries)
    (array([2, 1]), 1)
    """
    order = np.random.default_rng(seed).permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]  # class after class
    _, starts, sizes = np.unique(labels[order], return_index=True, return_counts=True)
    place = np.arange(len(labels)) - np.repeat(starts, sizes)
    first = place < np.repeat((sizes + 1) // 2, sizes)
    return np.sort(order[first]), np.sort(order[~first])


def classification(
    vectors: Tensor, labels: Labels, notes: list[str], *, metric: str = "cosine", seed: int = 0
) -> dict[str, Any] | None:
    """Errors of kNN, soft kNN, kNC and nearest class mean, and what kNN confuses.

    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> classification(x, np.array([0, 0, 1, 1]), [])["errors"]["nearest_mean"]
    0.0
    """
    reference, tested = halves(labels, seed=seed)
    if not len(tested):
        notes.append("classification: left out, no class has two samples to split")
        return None
    if len(tested) > MOST_QUERIES:
        notes.append(
            f"classification: a random {MOST_QUERIES:,} of {len(tested):,} samples were classified"
        )
        tested = np.sort(np.random.default_rng(seed).permutation(tested)[:MOST_QUERIES])
    points = unit(vectors) if metric == "cosine" else vectors
    gallery, queries = points[reference], points[tested]
    names, truth = labels[reference], labels[tested]
    found = class_kmeans(gallery, torch.from_numpy(names).to(points.device), CLUSTERS, seed=seed)
    variance = found.inertia / max(len(reference) - 1, 1)
    k = min(5, len(reference))
    by_knn = knn_predict(queries, gallery, names, k=k, metric=metric)
    predicted = {
        "knn": by_knn,
        "soft_knn": soft_knn_predict(queries, gallery, names, variance),
        "knc": knc_predict(queries, found.centers, found.cluster_labels.cpu().numpy(), variance),
        "nearest_mean": nearest_mean_predict(queries, gallery, names, metric=metric),
    }
    wrong = {pair: n for pair, n in confusion_counts(truth, by_knn).items() if pair[0] != pair[1]}
    return {
        "errors": {name: error_rate(truth, one) for name, one in predicted.items()},
        "reference": len(reference),
        "queries": len(tested),
        "k": k,
        "clusters": CLUSTERS,
        "confusions": [[*pair, n] for pair, n in list(wrong.items())[:LISTED]],
    }


def verification(
    vectors: Tensor,
    labels: Labels,
    notes: list[str],
    *,
    calibration: Part | None = None,
    fmr: float = 1e-3,
    metric: str = "cosine",
    seed: int = 0,
) -> dict[str, Any] | None:
    """Rates at a threshold chosen on other classes, with intervals over the classes, and the ROC.

    calibration: the validation classes, to choose the threshold on; without them a random half of
    the classes is used for it and left out of the test.

    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(80) % 8
    >>> x = torch.from_numpy(4 * rng.standard_normal((8, 8))[y] + rng.standard_normal((80, 8)))
    >>> found = verification(x, y, [], fmr=0.01)
    >>> found["calibrated_on"], found["tmr"] > 0.8
    ('a random half of the classes', True)
    """
    on = "the validation classes"
    tested: Labels | slice = slice(None)
    if calibration is None or not _pairs(calibration[1]):
        drawn, tested = _half_of_classes(labels, seed)
        calibration = (vectors[drawn], labels[drawn])
        on = "a random half of the classes"
    if not (_pairs(calibration[1]) and _pairs(labels[tested])):
        notes.append(
            "verification: left out, it needs two classes with pairs of samples to choose a "
            "threshold on and two more to test it on"
        )
        return None
    threshold = roc_curve(*calibration, metric=metric).threshold_at(fmr)
    calibration = None  # frees it
    rest = (vectors[tested], labels[tested])
    roc, rates = evaluate_threshold(*rest, threshold, metric=metric, seed=seed)
    false, true = roc.curve()
    return {
        "threshold": threshold,
        "calibrated_on": on,
        "target_fmr": fmr,
        **rates,
        "auc": roc.auc,
        "eer": roc.eer,
        "tmr_at": {str(rate): roc.tmr_at(rate) for rate in (1e-3, 1e-2, 1e-1)},
        "classes": len(np.unique(rest[1])),
        "curve": {"fmr": false.round(7).tolist(), "tmr": true.round(7).tolist()},
    }


def open_set(
    vectors: Tensor,
    labels: Labels,
    notes: list[str],
    *,
    calibration: Part | None = None,
    metric: str = "cosine",
    seed: int = 0,
) -> dict[str, Any] | None:
    """Open-set identification: half of the samples of half of the classes are the gallery.

    The threshold accepts 5 % of the queries of unknown classes. It is chosen on the validation
    classes, or without them on half of the unknown classes; the other half is then tested.

    >>> x = torch.eye(4).repeat_interleave(4, 0)
    >>> found = open_set(x, np.repeat(np.arange(4), 4), [])
    >>> found["identified"], found["known"], found["unknown"]
    (1.0, 4, 4)
    """
    names = np.unique(labels)
    if len(names) < 4 or np.bincount(np.unique(labels, return_inverse=True)[1]).max() < 2:
        notes.append("open set: left out, it needs four classes, one of them with two samples")
        return None
    drawn = np.random.default_rng(seed).permutation(names)
    known, unknown = np.split(drawn, [len(drawn) // 2])
    first, second = halves(labels, seed=seed)
    gallery = first[np.isin(labels[first], known)]
    if calibration is None:
        used, unknown = np.split(unknown, [len(unknown) // 2])
        strangers = vectors[np.flatnonzero(np.isin(labels, used))]
    else:
        strangers = calibration[0]
    queries = np.concatenate(
        [second[np.isin(labels[second], known)], np.flatnonzero(np.isin(labels, unknown))]
    )
    threshold = open_set_threshold(strangers, vectors[gallery], metric=metric)
    found = open_set_metrics(
        vectors[queries],
        labels[queries],
        vectors[gallery],
        labels[gallery],
        threshold,
        metric=metric,
    )
    return {"threshold": threshold, "target_false_alarms": 0.05, **found}


def _pairs(labels: Labels) -> bool:
    """Whether there are pairs of one class and of two."""
    sizes = np.unique(labels, return_counts=True)[1]
    return len(sizes) > 1 and bool(sizes.max() > 1)


def _half_of_classes(labels: Labels, seed: int) -> tuple[Labels, Labels]:
    """The samples of classes with two or more, in two random halves of these classes."""
    names, sizes = np.unique(labels, return_counts=True)
    drawn = np.random.default_rng(seed).permutation(names[sizes > 1])
    first, second = np.split(drawn, [len(drawn) // 2])
    return np.flatnonzero(np.isin(labels, first)), np.flatnonzero(np.isin(labels, second))
