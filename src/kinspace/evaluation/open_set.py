"""Open-set identification: queries of classes that are not in the gallery must be rejected.

A query is accepted if its nearest gallery item is at least as similar as a threshold, and then gets
the class of that item. The threshold is chosen with queries of unknown classes that are not those
of the test.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from kinspace._core import checks
from kinspace.evaluation.similarity import Labels, Vectors, labels_of, nearest, vectors_of

__all__ = ["open_set_metrics", "open_set_threshold"]


def open_set_threshold(
    unknown: Vectors, gallery: Vectors, *, false_alarms: float = 0.05, metric: str = "cosine"
) -> float:
    """A threshold that accepts at most this share of queries of unknown classes.

    It is halfway between the lowest accepted score and the highest rejected one.

    >>> gallery = np.array([[1.0, 0.0]])
    >>> open_set_threshold(np.array([[0.0, 1.0], [0.6, 0.8]]), gallery, false_alarms=0.5)
    0.3
    """
    if not 0 <= checks.number("false_alarms", false_alarms) < 1:
        raise ValueError(f"false_alarms: expected a rate from 0 to below 1, got {false_alarms!r}")
    scores, _ = _best(unknown, gallery, metric)
    ordered = scores.sort(descending=True).values
    allowed = int(false_alarms * len(ordered) + 1e-9)
    refused = float(ordered[allowed])
    above = ordered[ordered > refused + 1e-12 * abs(refused)]
    accepted = float(above[-1]) if len(above) else refused + 1e-9 * (abs(refused) or 1.0)
    return (refused + accepted) / 2


def open_set_metrics(
    vectors: Vectors,
    labels: Labels,
    gallery: Vectors,
    gallery_labels: Labels,
    threshold: float,
    *,
    metric: str = "cosine",
) -> dict[str, float]:
    """Shares of queries accepted and rejected at a threshold; their classes may be unknown.

    identified, misidentified, rejected: shares of the queries of known classes. false_alarms: the
    share of those of unknown classes that are accepted. auc: the probability that a query of a
    known class is more similar to the gallery than one of an unknown class. NaN where there are
    none.

    >>> gallery, y = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([0, 1])
    >>> x = np.array([[1.0, 0.1], [0.1, 1.0], [-1.0, 0.0]])
    >>> found = open_set_metrics(x, np.array([0, 1, 9]), gallery, y, 0.9)
    >>> found["identified"], found["false_alarms"], found["auc"]
    (1.0, 0.0, 1.0)
    """
    truth = labels_of(vectors, labels)
    names = labels_of(gallery, gallery_labels, name="gallery_labels")
    scores, index = _best(vectors, gallery, metric)
    known = np.isin(truth, names)
    accepted = scores.cpu().numpy() >= checks.number("threshold", threshold)
    right = names[index.cpu().numpy()] == truth
    return {
        "identified": _share(accepted & right, known),
        "misidentified": _share(accepted & ~right, known),
        "rejected": _share(~accepted, known),
        "false_alarms": _share(accepted, ~known),
        "auc": _auc(scores.cpu(), torch.from_numpy(known)),
        "known": int(known.sum()),
        "unknown": int((~known).sum()),
    }


def _best(vectors: Vectors, gallery: Vectors, metric: str) -> tuple[Tensor, Tensor]:
    queries = vectors_of(vectors)
    others = vectors_of(gallery, device=queries.device, name="gallery")
    values, index = nearest(queries, 1, gallery=others, metric=metric)
    return values[:, 0], index[:, 0]


def _share(
    what: np.ndarray[tuple[int], np.dtype[np.bool_]],
    among: np.ndarray[tuple[int], np.dtype[np.bool_]],
) -> float:
    return float(what[among].mean()) if among.any() else np.nan


def _auc(scores: Tensor, known: Tensor) -> float:
    ours, others = scores[known], scores[~known].sort().values
    if not len(ours) or not len(others):
        return np.nan
    below = torch.searchsorted(others, ours) + torch.searchsorted(others, ours, right=True)
    return float(below.double().sum() / 2 / len(ours) / len(others))
