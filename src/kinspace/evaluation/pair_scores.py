"""Histograms of the scores of all pairs of samples, computed in tiles.

A score is a cosine or a negative distance. The histogram has 2^20 equal steps. The memory is that
of a tile and of the histogram, however many pairs there are, and a threshold is exact to one step,
2e-6 for cosines. The samples are first ordered by class, so that pairs of one class are only in the
tiles along the diagonal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kinspace._core import checks
from kinspace._core.vectors import unit
from kinspace.evaluation.roc import Roc
from kinspace.evaluation.similarity import METRICS

__all__ = ["Accepted", "PairScores"]

STEPS = 2**20
SIDE = {"cpu": 2048, "cuda": 8192}  # samples along each side of a tile
CELLS = 2**22  # entries after which the accepted pairs so far are summed up


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
        points = vectors[order].double()
        if self.cosine:
            points = unit(points)
            self.low, high = -1.0, 1.0
        else:
            points = points - points.mean(0)
            self.low = -2 * float(torch.linalg.vector_norm(points, dim=1).max()) or -1.0
            high = 0.0
        self.points, self.labels = points.float(), labels[order]
        self.squares = points.square().sum(1).float()
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
            steps = ((scores - self.low) / self.width).clamp_(0, STEPS - 1).int()
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


Cells = tuple[NDArray[np.int64], NDArray[np.float64]]  # numbers of two classes, and pairs


def _summed(parts: list[Cells]) -> Cells:
    cells, places = np.unique(np.concatenate([cells for cells, _ in parts]), return_inverse=True)
    pairs = np.concatenate([pairs for _, pairs in parts])
    return cells, np.bincount(places, pairs, len(cells)).astype(np.float64)


def _accepted(found: Cells, count: int) -> Accepted:
    cells, pairs = found
    return Accepted(cells // count, cells % count, pairs)
