"""Verification: whether two pictures are of the same class.

A pair is accepted if its score, a cosine or a negative distance, is at least a threshold.

    TMR   true-match rate: the share of pairs of one class that are accepted
    FMR   false-match rate: the share of pairs of two classes that are accepted
    EER   equal error rate: where FMR = 1 - TMR
    AUC   the probability that a pair of one class scores above a pair of two

A threshold must be tested on classes it was not chosen on: `verification_metrics` chooses it on
half of the classes and reports the rates on the other half. Confidence intervals resample classes
with replacement. A pair within a class counts as often as its class was drawn; a pair of two
classes counts the product of both.

All pairs are scored, in tiles, into a histogram of 2^20 equal steps. The memory is that of a tile
and of the histogram, however many pairs there are, and a threshold is exact to one step, 2e-6 for
cosines. The samples are first ordered by class, so that pairs of one class are only in the tiles
along the diagonal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kinspace._core import checks
from kinspace.evaluation.similarity import METRICS, Labels, Vectors, unit_rows, with_labels

__all__ = [
    "Accepted",
    "PairScores",
    "Roc",
    "evaluate_threshold",
    "roc_curve",
    "verification_metrics",
]

STEPS = 2**20
SIDE = {"cpu": 2048, "cuda": 8192}  # samples along each side of a tile
CELLS = 2**22  # entries after which the accepted pairs so far are summed up
Cells = tuple[NDArray[np.int64], NDArray[np.float64]]  # numbers of two classes, and pairs


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


@dataclass(frozen=True, eq=False)
class Accepted:
    """Accepted pairs by their two classes, first <= second; only classes with such a pair."""

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    pairs: NDArray[np.float64]


class PairScores:
    """All pairs of samples of classes 0, 1, ...

    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1], [0.1, 1.0]])
    >>> roc, accepted = PairScores(x, torch.tensor([0, 1, 0, 1]), "cosine").count(threshold=0.9)
    >>> roc.auc, accepted.first, accepted.second, accepted.pairs
    (1.0, array([0, 1]), array([0, 1]), array([1., 1.]))
    """

    def __init__(self, vectors: Tensor, labels: Tensor, metric: str) -> None:
        self.cosine = checks.choice("metric", metric, METRICS) == "cosine"
        order = labels.argsort(stable=True)
        points, self.labels = vectors[order], labels[order]
        if self.cosine:
            self.points = unit_rows(points, torch.float32)
            self.low, high = -1.0, 1.0
        else:
            exact = points.double()
            exact -= exact.mean(0)
            self.low = -2 * float(torch.linalg.vector_norm(exact, dim=1).max()) or -1.0
            self.points, high = exact.float(), 0.0
            self.squares = exact.square().sum(1).float()
        self.width = (high - self.low) / STEPS

    @property
    def class_sizes(self) -> NDArray[np.int64]:
        """Samples of each class."""
        sizes: NDArray[np.int64] = self.labels.bincount().cpu().numpy()
        return sizes

    def count(self, threshold: float | None = None) -> tuple[Roc, Accepted]:
        """Count the pairs by score and, given a threshold, those from it on by their classes."""
        same = torch.zeros(STEPS, dtype=torch.int64, device=self.points.device)
        both = torch.zeros_like(same)
        count = int(self.labels[-1]) + 1
        cells = [(np.empty(0, np.int64), np.empty(0))]
        for rows, columns, scores, pairs in self._tiles():
            ours, theirs = self.labels[rows], self.labels[columns]
            steps = scores.sub(self.low).div_(self.width).clamp_(0, STEPS - 1).int()
            both += (steps.flatten() if pairs is None else steps[pairs]).bincount(minlength=STEPS)
            if ours[-1] >= theirs[0]:  # else no class is in both
                match = ours[:, None] == theirs
                match = match if pairs is None else match & pairs
                same += steps[match].bincount(minlength=STEPS)
            if threshold is not None:
                near = scores >= threshold
                row, column = (near if pairs is None else near & pairs).nonzero().T
                found, hits = (ours[row] * count + theirs[column]).unique(return_counts=True)
                cells.append((found.cpu().numpy(), hits.cpu().numpy()))
                cells = cells if sum(len(one) for one, _ in cells) < CELLS else [_summed(cells)]
        return self._roc(same, both - same), _accepted(_summed(cells), count)

    def _tiles(self) -> Iterator[tuple[slice, slice, Tensor, Tensor | None]]:
        """Rows, columns, their scores, and on the diagonal which are pairs: i < j."""
        count, side = len(self.points), SIDE.get(self.points.device.type, SIDE["cpu"])
        for row in range(0, count, side):
            rows = slice(row, min(row + side, count))
            for column in range(row, count, side):
                columns = slice(column, min(column + side, count))
                with torch.autocast(self.points.device.type, enabled=False):
                    scores = self.points[rows] @ self.points[columns].T
                if not self.cosine:
                    squares = self.squares[rows, None] + self.squares[columns] - 2 * scores
                    scores = squares.clamp_(min=0).sqrt_().neg_()
                pairs = (
                    torch.ones_like(scores, dtype=torch.bool).triu_(1) if row == column else None
                )
                yield rows, columns, scores, pairs

    def _roc(self, same: Tensor, different: Tensor) -> Roc:
        for name, counts in (("one class", same), ("two classes", different)):
            if not int(counts.sum()):
                raise ValueError(f"labels: expected pairs of {name}, got none among the vectors")
        return Roc(same.cpu().numpy(), different.cpu().numpy(), self.low, self.width)


def _summed(parts: list[Cells]) -> Cells:
    cells, places = np.unique(np.concatenate([cells for cells, _ in parts]), return_inverse=True)
    pairs = np.concatenate([pairs for _, pairs in parts])
    return cells, np.bincount(places, pairs, len(cells)).astype(np.float64)


def _accepted(found: Cells, count: int) -> Accepted:
    cells, pairs = found
    return Accepted(cells // count, cells % count, pairs)


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
