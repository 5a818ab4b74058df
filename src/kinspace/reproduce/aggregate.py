"""From records to what a table shows: mean and spread over the seeds, a row each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from kinspace.reproduce.experiment import Experiment
from kinspace.reproduce.measures import lower_is_better
from kinspace.reproduce.rows import Curve

__all__ = ["mean_curve", "mean_spread", "reached", "summaries"]

Record = Mapping[str, Any]


def mean_spread(values: Iterable[float]) -> dict[str, float] | None:
    """Mean, standard deviation of a sample (0 for one value) and count; None for none.

    >>> mean_spread([0.5, 0.7])
    {'mean': 0.6, 'spread': 0.141..., 'seeds': 2}
    """
    numbers = [float(value) for value in values]
    if not numbers:
        return None
    spread = float(np.std(numbers, ddof=1)) if len(numbers) > 1 else 0.0
    return {"mean": float(np.mean(numbers)), "spread": spread, "seeds": len(numbers)}


def summaries(experiment: Experiment, records: Sequence[Record]) -> dict[str, dict[str, Any]]:
    """By row: test measures, validation, steps and seconds.

    Where a row was run on all classes and with some held out, the test measures are of the first
    and the validation of the second; what the second had on the test part is "held_out".
    """
    found: dict[str, dict[str, Any]] = {}
    for row in experiment.rows:
        own = [record for record in records if record["row"] == row.name]
        whole = [record for record in own if not record["held_out"]]
        held = [record for record in own if record["held_out"]]
        if own:
            found[row.name] = _summary(experiment, whole, held)
    untrained = next((record["untrained"] for record in records if record.get("untrained")), None)
    if untrained:
        test = {name: mean_spread([value]) for name, value in untrained.items()}
        found["untrained"] = {"test": test}
    if experiment.curve is not None:
        _reach(found, experiment.curve)
    return found


def _summary(
    experiment: Experiment, whole: Sequence[Record], held: Sequence[Record]
) -> dict[str, Any]:
    def over(records: Sequence[Record], part: str, name: str) -> dict[str, float] | None:
        return mean_spread(
            record[part][name] for record in records if name in (record.get(part) or {})
        )

    first = whole or held
    test = {name: over(first, "test", name) for name in experiment.measures}
    summary: dict[str, Any] = {
        "test": {name: value for name, value in test.items() if value is not None},
        "validation": over(held or whole, "validation", "recall@1"),
        "steps": sorted({record["steps"] + record.get("warm_start", 0) for record in first}),
        "seconds": mean_spread(record["seconds"] for record in first),
        "seeds": sorted(record["seed"] for record in first),
    }
    finals = {name: over(first, "final", name) for name in experiment.measures}
    if any(record.get("selected_step") != record["steps"] for record in first):
        summary["final"] = {name: value for name, value in finals.items() if value is not None}
    if whole and held:
        both = {name: over(held, "test", name) for name in experiment.measures}
        summary["held_out"] = {name: value for name, value in both.items() if value is not None}
    if (curve := mean_curve(first)) is not None:
        summary["curve"] = curve
    return summary


def mean_curve(records: Sequence[Record]) -> list[list[float]] | None:
    """[step, mean, spread] at the steps that all runs have."""
    curves = [dict(map(tuple, record["curve"])) for record in records if record.get("curve")]
    if not curves:
        return None
    shared = sorted(set.intersection(*(set(curve) for curve in curves)))
    rows = []
    for step in shared:
        found = mean_spread(curve[step] for curve in curves)
        assert found is not None
        rows.append([step, found["mean"], found["spread"]])
    return rows


def reached(curve: Sequence[Sequence[float]], goal: float, *, lower: bool) -> float | None:
    """The first step of a curve that is as good as the goal; None: it never is.

    >>> reached([[10, 0.5, 0], [20, 0.3, 0], [30, 0.2, 0]], 0.3, lower=True)
    20
    """
    for step, value, *_ in curve:
        if (value <= goal) if lower else (value >= goal):
            return step
    return None


def _reach(found: dict[str, dict[str, Any]], curve: Curve) -> None:
    """How many steps each row needs to the last values of the rows to reach."""
    with_curve = {name: each["curve"] for name, each in found.items() if each.get("curve")}
    goals = {name: with_curve[name][-1][1] for name in curve.reach if name in with_curve}
    lower = lower_is_better(curve.measure)
    for name, own in with_curve.items():
        steps = {row: reached(own, goal, lower=lower) for row, goal in goals.items()}
        found[name]["reached"] = steps
