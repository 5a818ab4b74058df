"""Thresholds of similarity: whether two pictures are of one class, and whether a class is known.

    same    for a pair: the lowest cosine with a false-match rate of 1 % among all pairs
    known   for a picture and its nearest in the gallery: accepts 5 % of the pictures of classes
            that the gallery does not have. It is higher than `same`, because the nearest of many
            pictures is more similar than the other picture of a random pair.

Both are set on the run's validation classes, which the model was not trained on; for `known` these
classes are left out of the gallery. The rates of `same` on the test classes are only reported.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kinspace._core.atomic_files import write_json
from kinspace.embeddings import EmbeddingTable
from kinspace.evaluation.open_set import open_set_threshold
from kinspace.evaluation.verification import Roc, roc_curve

__all__ = ["Thresholds", "calibrate"]

MAX_PICTURES = 20_000  # whose pairs are counted; of more, an evenly spaced selection


@dataclass(frozen=True)
class Thresholds:
    """Thresholds of the cosine, and the data they were set on.

    fmr, tmr: the rates of false and true matches at `same` on the validation classes; test_fmr and
    test_tmr on the test classes. classes, pictures: their numbers in the calibration.

    >>> Thresholds(same=0.6, fmr=0.01, tmr=0.9, classes=5, pictures=50, known=0.8).known
    0.8
    """

    same: float
    fmr: float
    tmr: float
    classes: int
    pictures: int
    known: float | None = None
    false_alarms: float | None = None
    test_fmr: float | None = None
    test_tmr: float | None = None

    def save(self, file: Path) -> None:
        """Write a JSON file."""
        write_json(file, asdict(self))

    @staticmethod
    def load(file: Path) -> Thresholds:
        """Read a file by `save`; raises a ValueError for any other file."""
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            thresholds = Thresholds(**found)
            for name in ("same", "known"):
                value = getattr(thresholds, name)
                if value is not None and not -1 <= float(value) <= 1.01:
                    raise ValueError(f"{name} is {value}")
        except (OSError, ValueError, TypeError) as error:
            raise ValueError(f"{file}: expected thresholds, got another file: {error}") from None
        return thresholds


def calibrate(
    table: EmbeddingTable,
    validation: NDArray[np.bool_],
    test: NDArray[np.bool_] | None = None,
    *,
    fmr: float = 0.01,
    false_alarms: float = 0.05,
) -> Thresholds:
    """Set the thresholds on the rows of the validation classes (a mask), and test `same`.

    fmr: the false-match rate of `same`. false_alarms: the share of unknown pictures that `known`
    accepts.

    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(60) % 6
    >>> table = EmbeddingTable(4 * rng.standard_normal((6, 8))[y] + rng.standard_normal((60, 8)), y)
    >>> found = calibrate(table, y < 3, y >= 3)
    >>> found.fmr <= 0.01, found.tmr > 0.8, found.known > found.same
    (True, True, True)
    """
    assert table.labels is not None
    calibration = table.select(_selected(validation))
    roc = roc_curve(calibration)
    same = roc.threshold_at(fmr)
    rates = _rates(roc, same)
    classes = np.unique(table.labels[validation])
    others = ~np.isin(table.labels, classes)
    known = None
    if others.any():
        gallery = table.select(others)
        known = open_set_threshold(calibration, gallery, false_alarms=false_alarms)
    test_rates: tuple[float | None, float | None] = (None, None)
    if test is not None and len(np.unique(table.labels[test & others])) > 1:
        test_rates = _rates(roc_curve(table.select(_selected(test & others))), same)
    return Thresholds(
        same=same,
        fmr=rates[0],
        tmr=rates[1],
        classes=len(classes),
        pictures=len(calibration),
        known=known,
        false_alarms=None if known is None else false_alarms,
        test_fmr=test_rates[0],
        test_tmr=test_rates[1],
    )


def _selected(mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    rows = np.flatnonzero(mask)
    if len(rows) <= MAX_PICTURES:
        return rows
    return rows[np.linspace(0, len(rows) - 1, MAX_PICTURES).astype(np.int64)]


def _rates(roc: Roc, threshold: float) -> tuple[float, float]:
    """False- and true-match rate at a threshold on the grid of the ROC curve."""
    step = round((threshold - roc.low) / roc.width)
    tmr, fmr = roc.rates()
    return float(fmr[step]), float(tmr[step])
