"""The ROC of pairs: how many pairs of one class and of two classes reach a threshold.

TMR   true-match rate: the share of pairs of one class that are accepted
FMR   false-match rate: the share of pairs of two classes that are accepted
EER   equal error rate: where FMR = 1 - TMR
AUC   the probability that a pair of one class scores above a pair of two
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Roc"]


@dataclass(frozen=True, eq=False)
class Roc:
    """Histograms of the scores of pairs of one class and of two classes, (steps,).

    >>> roc = Roc(np.array([0, 1, 3]), np.array([4, 2, 0]), low=-1.0, width=0.5)
    >>> roc.threshold_at(0.0), roc.tmr_at(0.0), round(roc.auc, 4)
    (0.0, 0.75, 0.9583)
    """

    same: NDArray[np.int64]
    different: NDArray[np.int64]
    low: float  # the score where the first step begins
    width: float  # of a step

    @property
    def auc(self) -> float:
        """Area under the curve; pairs in the same step count half."""
        below = np.cumsum(self.different) - self.different
        wins = (self.same * (below + self.different / 2)).sum()
        return float(wins / self.same.sum() / self.different.sum())

    def rates(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """TMR and FMR at the start of each step, and at a threshold above all scores."""
        return _from_above(self.same), _from_above(self.different)

    def threshold_at(self, fmr: float) -> float:
        """The lowest threshold with at most this false-match rate."""
        return self.low + self.width * self._step_at(fmr)

    def tmr_at(self, fmr: float) -> float:
        """The true-match rate at that threshold."""
        return float(self.rates()[0][self._step_at(fmr)])

    def _step_at(self, fmr: float) -> int:
        if not 0 <= fmr <= 1:
            raise ValueError(f"fmr: expected a rate from 0 to 1, got {fmr!r}")
        return int(np.argmax(self.rates()[1] <= fmr))

    @property
    def eer(self) -> float:
        """The equal error rate, interpolated linearly between two thresholds."""
        tmr, fmr = self.rates()
        gap = fmr - (1 - tmr)  # falls from 1 to -1
        after = int(np.argmax(gap <= 0))
        if after == 0 or gap[after] == 0:
            return float(fmr[after])
        share = gap[after - 1] / (gap[after - 1] - gap[after])
        return float(fmr[after - 1] + share * (fmr[after] - fmr[after - 1]))

    def curve(self, points: int = 500) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """FMR and TMR at about `points` thresholds, from (0, 0) to (1, 1), for a plot."""
        tmr, fmr = self.rates()
        moves = np.flatnonzero(np.diff(fmr) + np.diff(tmr)) + 1
        keep = np.unique(moves[np.linspace(0, len(moves) - 1, points).astype(int)])
        keep = np.concatenate([[0], keep, [len(fmr) - 1]])[::-1]
        return fmr[keep], tmr[keep]


def _from_above(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    above: NDArray[np.float64] = np.append(np.cumsum(counts[::-1])[::-1], 0) / counts.sum()
    return above
