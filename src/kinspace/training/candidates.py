"""Settings that were tried on held-out training classes: their scores, and which are better.

Of two candidates the better one has the higher Recall@1, if that is more than one standard error of
the paired difference; else the higher MAP@R. What counts is new classes, so the error is that of a
mean over classes drawn at random, not over pictures.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kinspace.evaluation.retrieval import QueryScores
from kinspace.training.run_folder import read_checkpoint, write_checkpoint

__all__ = [
    "Candidate",
    "Point",
    "best_point",
    "better",
    "first_of_the_best",
    "join_folds",
    "measures",
    "percent",
    "read_candidate",
    "replaces",
    "summary",
    "write_candidate",
]

MANY = 2**32  # more than a fold has classes


@dataclass(frozen=True, eq=False)
class Point:
    """The scores of a candidate at a step, for each query of the held-out classes."""

    step: int
    recall: Tensor  # (queries,) 1 where the nearest picture is of the class
    precision: Tensor  # (queries,) its share of MAP@R, 0 for a query without a match
    classes: Tensor  # (queries,) the class of each

    @classmethod
    def of(cls, step: int, scores: QueryScores, labels: Tensor) -> Point:
        """The point of a validation."""
        values = scores.values
        return cls(
            step,
            values["recall@1"].float().cpu(),
            values["map@r"].nan_to_num().float().cpu(),
            labels.cpu(),
        )

    def to_dict(self) -> dict[str, Any]:
        """The means, for JSON."""
        return {
            "step": self.step,
            "recall@1": float(self.recall.mean()),
            "map@r": float(self.precision.mean()),
        }


def better(first: Point, second: Point, *, errors: float = 1.0) -> int:
    """1 where the first is better, -1 where the second is, 0 where the classes cannot tell.

    errors: by how many standard errors it has to be.

    >>> classes = torch.arange(50) % 5
    >>> sure = Point(10, torch.ones(50), torch.ones(50), classes)
    >>> poor = Point(10, torch.zeros(50), torch.zeros(50), classes)
    >>> better(sure, poor), better(poor, sure), better(sure, sure)
    (1, -1, 0)
    """
    for ours, theirs in ((first.recall, second.recall), (first.precision, second.precision)):
        apart = ours.double() - theirs.double()
        mean = float(apart.mean())
        if abs(mean) > errors * _standard_error(apart, first.classes):
            return 1 if mean > 0 else -1
    return 0


def replaces(trained: Point, start: Point) -> bool:
    """Whether a training is worth more than its start: better by two standard errors.

    By its MAP@R alone only where its Recall@1 is not lower.

    >>> classes = torch.arange(50) % 5
    >>> start = Point(0, torch.ones(50), torch.zeros(50), classes)
    >>> precise = Point(9, torch.ones(50), torch.ones(50), classes)
    >>> replaces(precise, start), replaces(replace(precise, recall=0.9 * precise.recall), start)
    (True, False)
    """
    lower = float(trained.recall.mean()) < float(start.recall.mean())
    return better(trained, start, errors=2.0) > 0 and not lower


def _standard_error(values: Tensor, classes: Tensor) -> float:
    """Of the mean of the values, which are drawn in whole classes (cluster-robust).

    sqrt( C / (C - 1) sum_c (sum_{i in c} (v_i - v))^2 ) / N
    """
    found, places = classes.unique(return_inverse=True)
    sums = torch.zeros(len(found), dtype=values.dtype).index_add(0, places, values - values.mean())
    spread = float(sums.square().sum()) * len(found) / max(len(found) - 1, 1)
    return math.sqrt(spread) / max(len(values), 1)


@dataclass(frozen=True, eq=False)
class Candidate:
    """Settings that were tried: their changes of the recipe, and what they scored by step.

    kind: "start", "frozen" or "training". ended: why there are no further points.
    """

    name: str
    kind: str
    changes: Mapping[str, Any]
    points: tuple[Point, ...]
    seconds: float
    ended: str = ""

    @property
    def best(self) -> Point:
        """The point that no other is better than; of equal ones the last."""
        return best_point(self.points)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "name": self.name,
            "kind": self.kind,
            "changes": dict(self.changes),
            "points": [point.to_dict() for point in self.points],
            "best": self.best.step if self.points else None,
            "seconds": round(self.seconds, 1),
            "ended": self.ended,
        }


def best_point(points: Sequence[Point]) -> Point:
    """The highest Recall@1; of those it cannot be told from, the highest MAP@R; then the last."""
    top = max(points, key=lambda point: float(point.recall.mean()))
    near = [point for point in points if not _recall_apart(top, point)]
    return max(near, key=lambda point: (round(float(point.precision.mean()), 4), point.step))


def _recall_apart(first: Point, second: Point) -> bool:
    return (
        better(replace(first, precision=first.recall), replace(second, precision=second.recall))
        != 0
    )


def join_folds(folds: Sequence[Sequence[Point]]) -> tuple[Point, ...]:
    """The points of the steps that every fold has, their queries in a row."""
    shared = set.intersection(*({point.step for point in points} for points in folds))
    by_step = [{point.step: point for point in points} for points in folds]
    return tuple(
        Point(
            step,
            torch.cat([points[step].recall for points in by_step]),
            torch.cat([points[step].precision for points in by_step]),
            # a class of another fold is another class
            torch.cat([points[step].classes + MANY * i for i, points in enumerate(by_step)]),
        )
        for step in sorted(shared)
    )


def first_of_the_best(starts: Sequence[Candidate]) -> Candidate:
    """The best start; of equal ones the first, which is the simplest."""
    best = starts[0]
    for start in starts[1:]:
        if better(start.best, best.best) > 0:
            best = start
    return best


def write_candidate(file: Path, candidate: Candidate) -> None:
    """Write what a candidate scored, by query."""
    tensors = {"classes": candidate.points[0].classes} if candidate.points else {}
    for point in candidate.points:
        tensors[f"recall.{point.step}"] = point.recall
        tensors[f"precision.{point.step}"] = point.precision
    write_checkpoint(file, tensors, candidate.to_dict())


def read_candidate(
    file: Path, name: str, kind: str, changes: Mapping[str, Any]
) -> Candidate | None:
    """A candidate that was tried before; None where the file is of another one, or damaged."""
    try:
        tensors, about = read_checkpoint(file)
        if (about["name"], about["kind"], about["changes"]) != (name, kind, dict(changes)):
            return None
        steps = [point["step"] for point in about["points"]]
        points = [
            Point(s, tensors[f"recall.{s}"], tensors[f"precision.{s}"], tensors["classes"])
            for s in steps
        ]
        return Candidate(name, kind, changes, tuple(points), about["seconds"], about["ended"])
    except (ValueError, KeyError):
        return None


def summary(candidate: Candidate) -> str:
    """In a line, for the terminal."""
    if not candidate.points:
        return f"{candidate.name}: {candidate.ended}"
    best = candidate.best
    at = "" if candidate.kind == "start" else f" at step {best.step}"
    ended = f" ({candidate.ended})" if candidate.ended else ""
    return f"{candidate.name}: Recall@1 {percent(best)}{at}{ended}"


def measures(point: Point) -> str:
    """Its Recall@1 and MAP@R, in words."""
    return f"Recall@1 {percent(point)}, MAP@R {float(point.precision.mean()):.1%}"


def percent(point: Point) -> str:
    """The Recall@1 of a point."""
    return f"{float(point.recall.mean()):.1%}"
