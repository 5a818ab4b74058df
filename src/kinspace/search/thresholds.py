"""From how similar on two pictures are of one kind, and a picture is of a kind in the gallery.

    same    for a pair: the lowest cosine with a false-match rate of 1 % among all pairs
    known   for a picture and its nearest in the gallery: accepts 5 % of pictures of classes that
            the gallery does not have. It is higher: of many chances to be near, the best counts.

Both are set on the run's validation classes, which the model was not trained on, with the gallery
less these classes for `known`. How `same` does on the test classes is written beside it; nothing is
chosen on those.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from kinspace._core.json_files import write_json
from kinspace.embeddings import EmbeddingTable
from kinspace.evaluation.open_set import open_set_threshold
from kinspace.evaluation.verification import Roc, roc_curve

__all__ = ["Thresholds", "calibrate"]

MANY = 20_000  # pictures whose pairs are counted; of more, so many evenly spread


@dataclass(frozen=True)
class Thresholds:
    """Cosines to decide by, and what they were set on.

    fmr, tmr: the rates of false and true matches at `same` on the validation classes; test_fmr and
    test_tmr on the test classes. classes, pictures: how many were calibrated on.
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
        """Write JSON."""
        write_json(file, asdict(self))

    @staticmethod
    def load(file: Path) -> Thresholds:
        """What `save` wrote; a ValueError if it is something else."""
        try:
            found = json.loads(file.read_text(encoding="utf-8"))
            made = Thresholds(**found)
            for name in ("same", "known"):
                if getattr(made, name) is not None and not -1 <= float(getattr(made, name)) <= 1.01:
                    raise ValueError(f"{name} is {getattr(made, name)}")
        except (OSError, ValueError, TypeError) as error:
            raise ValueError(f"{file}: expected thresholds, got another file: {error}") from None
        return made


def calibrate(
    table: EmbeddingTable,
    validation: NDArray[np.bool_],
    test: NDArray[np.bool_] | None = None,
    *,
    fmr: float = 0.01,
    false_alarms: float = 0.05,
) -> Thresholds:
    """Set the thresholds on the rows of the validation classes.

    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(60) % 6
    >>> table = EmbeddingTable(4 * rng.standard_normal((6, 8))[y] + rng.standard_normal((60, 8)), y)
    >>> found = calibrate(table, y < 3, y >= 3)
    >>> found.fmr <= 0.01, found.tmr > 0.8, found.known > found.same
    (True, True, True)
    """
    assert table.labels is not None
    chosen = table.select(_some(validation))
    roc = roc_curve(chosen)
    same = roc.threshold_at(fmr)
    reached = _rates(roc, same)
    own = np.unique(table.labels[validation])
    others = ~np.isin(table.labels, own)
    known = None
    if others.any():
        gallery = table.select(others)
        known = open_set_threshold(chosen, gallery, false_alarms=false_alarms)
    reported: tuple[float | None, float | None] = (None, None)
    if test is not None and len(np.unique(table.labels[test & others])) > 1:
        reported = _rates(roc_curve(table.select(_some(test & others))), same)
    return Thresholds(
        same,
        *reached,
        len(own),
        len(chosen),
        known,
        None if known is None else false_alarms,
        *reported,
    )


def _some(mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    rows = np.flatnonzero(mask)
    if len(rows) <= MANY:
        return rows
    return rows[np.linspace(0, len(rows) - 1, MANY).astype(np.int64)]


def _rates(roc: Roc, threshold: float) -> tuple[float, float]:
    """False- and true-match rate at a threshold, which is where a step of the counts begins."""
    step = round((threshold - roc.low) / roc.width)
    tmr, fmr = roc.rates()
    return float(fmr[step]), float(tmr[step])
