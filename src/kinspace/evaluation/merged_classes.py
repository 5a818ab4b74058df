"""Labels and errors of hierarchy recovery: Rippel et al., Magnet loss, ICLR 2016, sec. 4.3.

A model is trained on classes merged in random pairs and evaluated on the true classes. A low error
means that it separates classes that its labels did not. The experiment is
`kinspace.evaluation.hierarchy_recovery`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinspace.evaluation.classification import error_rate, knn_predict, nearest_mean_predict
from kinspace.evaluation.metric_inputs import Labels, Vectors, labels_of

__all__ = ["merged_pairs", "recovery_error"]


def merged_pairs(labels: Labels, *, seed: int = 0) -> NDArray[np.int64]:
    """Labels 0, 1, ... of classes merged in random pairs; of an odd number one stays alone.

    >>> merged = merged_pairs(np.array([4, 5, 6, 7, 4]), seed=1)
    >>> merged[0] == merged[4], sorted(np.bincount(merged).tolist())
    (np.True_, [2, 3])
    """
    if labels is None:
        raise ValueError("labels: expected one for each sample, got None")
    array = labels_of(np.empty((len(labels), 1)), labels)
    classes, numbers = np.unique(array, return_inverse=True)
    merged = np.empty(len(classes), np.int64)
    merged[np.random.default_rng(seed).permutation(len(classes))] = np.arange(len(classes)) // 2
    found: NDArray[np.int64] = merged[numbers]
    return found


def recovery_error(
    vectors: Vectors,
    labels: Labels,
    gallery: Vectors,
    gallery_labels: Labels,
    *,
    k: int = 5,
    metric: str = "cosine",
) -> dict[str, float]:
    """The errors on the true classes of a model trained on merged ones, by two classifiers.

    vectors, labels: test samples and their true classes; gallery: the training samples and theirs.

    >>> x, y = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([0, 1])
    >>> recovery_error(x, y, x[[0, 0, 1]], y[[0, 0, 1]], k=1)
    {'knn': 0.0, 'nearest_mean': 0.0}
    """
    truth: NDArray[Any] = labels_of(vectors, labels)
    knn = knn_predict(vectors, gallery, gallery_labels, k=k, metric=metric)
    means = nearest_mean_predict(vectors, gallery, gallery_labels, metric=metric)
    return {"knn": error_rate(truth, knn), "nearest_mean": error_rate(truth, means)}
