"""The measures of an experiment, by name: their titles, and which way is better."""

from __future__ import annotations

import re

from kinspace.evaluation.summary import MEASURES
from kinspace.recipes.fields import require_choice

__all__ = [
    "CLASSIFIERS",
    "LOSS",
    "RECOVERY",
    "VALIDATION",
    "at",
    "known_measure",
    "lower_is_better",
    "title",
]

CLASSIFIERS = ("knc", "soft_knn", "knn", "nearest_mean", "softmax")
BY_K = {
    "recall": "Recall",
    "views_recall": "six views, Recall",
    "train_recall": "train Recall",
    "attributes": "attributes",
    "impostors": "impostors",
}
TITLES = {
    "map": MEASURES["map"],
    "map@r": MEASURES["map@r"],
    "r_precision": MEASURES["r_precision"],
    "euclidean_map": f"{MEASURES['map']}, Euclidean",
    "nmi": "NMI",
    "ami": "AMI",
    "f1": "F1",
    "positive_cosine": "cosine x 100, nearest positive",
    "negative_cosine": "cosine x 100, nearest negative",
    "error": "error",
    "knc_error": "error, kNC",
    "soft_knn_error": "error, soft kNN",
    "knn_error": "error, kNN",
    "nearest_mean_error": "error, nearest mean",
    "softmax_error": "error, softmax",
    "recovery_error": "true classes, kNN error",
    "recovery_mean_error": "true classes, nearest mean error",
    "merged_error": "merged classes, kNN error",
}
RECOVERY = ("recovery_error", "recovery_mean_error", "merged_error")
VALIDATION = "validation_recall@1"  # only of a curve
LOSS = "loss"  # of the training, only of a curve
AT = re.compile(rf"({'|'.join(BY_K)})@([1-9][0-9]*)")


def known_measure(name: str) -> str:
    """The name, if it is that of a measure.

    >>> known_measure("recall@10"), known_measure("nmi")
    ('recall@10', 'nmi')
    >>> known_measure("nmy")
    Traceback (most recent call last):
    ValueError: measures: unknown measure 'nmy'; did you mean 'nmi'?
    """
    if AT.fullmatch(name):
        return name
    return require_choice(
        "measures", name, [*TITLES, *(f"{each}@1" for each in BY_K)], what="measure"
    )


def at(name: str) -> tuple[str, int] | None:
    """A measure at a K and that K; None for others.

    >>> at("recall@8"), at("map@r")
    (('recall', 8), None)
    """
    found = AT.fullmatch(name)
    return (found[1], int(found[2])) if found else None


def title(name: str) -> str:
    """The title of a measure.

    >>> title("recall@1"), title("nmi")
    ('Recall@1', 'NMI')
    """
    if name in (VALIDATION, LOSS):
        return "validation Recall@1" if name == VALIDATION else "training loss"
    found = at(name)
    return TITLES[name] if found is None else f"{BY_K[found[0]]}@{found[1]}"


def lower_is_better(name: str) -> bool:
    """Whether the measure counts errors, or is a loss."""
    return name.endswith("error") or name == LOSS or name.startswith("impostors@")
