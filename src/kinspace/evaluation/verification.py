"""Verification: are two pictures of one class? A pair is accepted from a threshold on.

    TMR   true-match rate: the share of pairs of one class that are accepted
    FMR   false-match rate: the share of pairs of two classes that are accepted
    EER   where FMR = 1 - TMR;   AUC   the chance that a pair of one class scores above one of two

All pairs are taken. Their scores, cosines or negative distances, are counted in 2^20 equal steps,
in blocks: memory is that of a block and of the counts, however many pairs there are, and each
threshold is exact to one step, 2e-6 for cosines.

A threshold is honest only on classes it was not chosen on: `verification_metrics` chooses it on one
part of the classes and reports on the rest. Intervals resample the classes reported on, with
replacement: a pair of one class counts as often as its class was drawn, a pair of two classes as
the product says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kinspace import checks
from kinspace.evaluation.inputs import Labels, Vectors, with_labels
from kinspace.evaluation.similarity import METRICS
from kinspace.numerics import unit

__all__ = ["Roc", "roc_curve", "verification_metrics"]

STEPS = 2**20
BLOCK = {"cpu": 1024, "cuda": 8192}


@dataclass(frozen=True, eq=False)
class Roc:
    """Pairs counted by score: of one class and of two, (steps,)."""

    same: NDArray[np.int64]
    different: NDArray[np.int64]
    low: float  # the score where the first step begins
    width: float  # of a step

    @property
    def auc(self) -> float:
        """Area under the curve; pairs in one step count half."""
        below = np.cumsum(self.different) - self.different
        wins = (self.same * (below + self.different / 2)).sum()
        return float(wins / self.same.sum() / self.different.sum())

    def rates(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """TMR and FMR for a threshold at the beginning of each step, and last above all."""
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
        """The equal error rate, between two thresholds in a straight line."""
        tmr, fmr = self.rates()
        gap = fmr - (1 - tmr)  # falls from 1 to -1
        after = int(np.argmax(gap <= 0))
        if after == 0 or gap[after] == 0:
            return float(fmr[after])
        share = gap[after - 1] / (gap[after - 1] - gap[after])
        return float(fmr[after - 1] + share * (fmr[after] - fmr[after - 1]))

    def curve(self, points: int = 500) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """FMR and TMR at about as many points as a plot needs, from (0, 0) to (1, 1)."""
        tmr, fmr = self.rates()
        moves = np.flatnonzero(np.diff(fmr) + np.diff(tmr)) + 1
        keep = np.unique(moves[np.linspace(0, len(moves) - 1, points).astype(int)])
        keep = np.concatenate([[0], keep, [len(fmr) - 1]])[::-1]
        return fmr[keep], tmr[keep]


def _from_above(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    above: NDArray[np.float64] = np.append(np.cumsum(counts[::-1])[::-1], 0) / counts.sum()
    return above


def roc_curve(
    vectors: Vectors,
    labels: Labels = None,
    *,
    metric: str = "cosine",
    device: str | torch.device | None = None,
) -> Roc:
    """Scores of all pairs.

    >>> x = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> roc = roc_curve(x, np.array([0, 0, 1, 1]))
    >>> roc.auc, roc.eer, roc.tmr_at(0.0)
    (1.0, 0.0, 1.0)
    """
    return _counted(_Scores(*with_labels(vectors, labels, device=device), metric))


class _Scores:
    """The scores of all pairs, a tile at a time."""

    def __init__(self, vectors: Tensor, labels: Tensor, metric: str) -> None:
        self.cosine = checks.choice("metric", metric, METRICS) == "cosine"
        points = vectors.double()
        if self.cosine:
            points = unit(points)
            self.low, self.high = -1.0, 1.0
        else:
            points = points - points.mean(0)
            self.low = -2 * float(torch.linalg.vector_norm(points, dim=1).max()) or -1.0
            self.high = 0.0
        self.points, self.labels = points.float(), labels
        self.squares = points.square().sum(1).float()
        self.width = (self.high - self.low) / STEPS
        self.size = BLOCK.get(vectors.device.type, BLOCK["cpu"])

    def tiles(self) -> Any:
        """Rows, columns, (rows, columns) scores and which of them are pairs: i < j."""
        count = len(self.points)
        for row in range(0, count, self.size):
            rows = slice(row, min(row + self.size, count))
            for column in range(row, count, self.size):
                columns = slice(column, min(column + self.size, count))
                with torch.autocast(self.points.device.type, enabled=False):
                    scores = self.points[rows] @ self.points[columns].T
                if not self.cosine:
                    squares = self.squares[rows, None] + self.squares[columns] - 2 * scores
                    scores = squares.clamp_(min=0).sqrt_().neg_()
                pairs = torch.ones_like(scores, dtype=torch.bool)
                yield rows, columns, scores, pairs.triu_(1) if row == column else pairs

    def steps(self, scores: Tensor) -> Tensor:
        """The step of each score."""
        return ((scores - self.low) / self.width).long().clamp_(0, STEPS - 1)


def _counted(scores: _Scores) -> Roc:
    same = torch.zeros(STEPS, dtype=torch.int64, device=scores.points.device)
    both = torch.zeros_like(same)
    for rows, columns, values, pairs in scores.tiles():
        steps = scores.steps(values)
        match = (scores.labels[rows, None] == scores.labels[columns]) & pairs
        both += steps[pairs].bincount(minlength=STEPS)
        same += steps[match].bincount(minlength=STEPS)
    different = both - same
    for name, counts in (("one class", same), ("two classes", different)):
        if not int(counts.sum()):
            raise ValueError(f"labels: expected pairs of {name}, got none among the vectors")
    return Roc(same.cpu().numpy(), different.cpu().numpy(), scores.low, scores.width)


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
    """Choose a threshold on a random half of the classes, report on the other half.

    threshold: the lowest with false-match rate `fmr` on the first half. tmr, fmr: the rates at it
    on the second, with 95 % intervals (tmr_low, tmr_high, ...) from `samples` draws of classes.
    auc, eer: on the second half as well.

    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(80) % 8
    >>> x = 4 * rng.standard_normal((8, 8))[y] + rng.standard_normal((80, 8))
    >>> found = verification_metrics(x, y, fmr=0.01, samples=100)
    >>> found["tmr"] > 0.8, found["tmr_low"] <= found["tmr"] <= found["tmr_high"]
    (True, True)
    """
    checks.whole("samples", samples, at_least=1)
    tensor, classes = with_labels(vectors, labels, device=device)
    count = int(classes.max()) + 1
    if count < 4:
        raise ValueError(f"labels: expected at least 4 classes, two for each half, got {count}")
    rng = np.random.default_rng(seed)
    first = torch.zeros(count, dtype=torch.bool, device=tensor.device)
    first[torch.from_numpy(rng.permutation(count)[: count // 2]).to(tensor.device)] = True
    chosen = first[classes]
    calibration = _counted(_Scores(tensor[chosen], classes[chosen], metric))
    threshold = calibration.threshold_at(fmr)
    report = _Scores(tensor[~chosen], classes[~chosen].unique(return_inverse=True)[1], metric)
    roc = _counted(report)
    found = _rates_with_intervals(report, threshold, samples, rng)
    return {"threshold": threshold, "auc": roc.auc, "eer": roc.eer, **found}


def _rates_with_intervals(
    scores: _Scores, threshold: float, samples: int, rng: np.random.Generator
) -> dict[str, float]:
    sizes = scores.labels.bincount().cpu().numpy().astype(np.float64)
    count = len(sizes)
    accepted: list[Tensor] = []
    for rows, columns, values, pairs in scores.tiles():
        row, column = (pairs & (values >= threshold)).nonzero().T
        ours, theirs = scores.labels[rows][row], scores.labels[columns][column]
        accepted.append((torch.minimum(ours, theirs) * count + torch.maximum(ours, theirs)).cpu())
    # Only pairs of classes with something accepted are kept.
    cells, hits = np.unique(torch.cat(accepted).numpy(), return_counts=True)
    low, high = cells // count, cells % count
    within = low == high
    own = np.zeros(count)
    own[low[within]] = hits[within]

    def rates(weights: NDArray[np.float64]) -> tuple[float, float]:
        matches = (weights * sizes * (sizes - 1) / 2).sum()
        crossed = weights[low[~within]] * weights[high[~within]] * hits[~within]
        total = weights * sizes
        others = (total.sum() ** 2 - (total**2).sum()) / 2
        return (
            float((weights * own).sum() / matches) if matches else np.nan,
            float(crossed.sum() / others) if others else np.nan,
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
