"""The table of an experiment: summaries over seeds, and the lines that a reader sees.

`summaries` turns the records of runs into mean and spread by row, as the results file keeps them;
`headings` and `table_lines` turn the content of a results file into text. A line has numbers of a
paper or of kinspace ("ours": percent, mean ± standard deviation over the seeds), never of both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from kinspace.reproduce.experiment import Curve, Experiment
from kinspace.reproduce.table_measures import VALIDATION, lower_is_better, title

__all__ = [
    "TableLine",
    "first_step_reaching",
    "headings",
    "mean_curve",
    "mean_spread",
    "summaries",
    "table_lines",
]

Content = Mapping[str, Any]
VALIDATION_TITLE = title(VALIDATION)
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


def first_step_reaching(
    curve: Sequence[Sequence[float]], target: float, *, lower: bool
) -> float | None:
    """The first step of a curve that is as good as the target; None if there is none.

    >>> first_step_reaching([[10, 0.5, 0], [20, 0.3, 0], [30, 0.2, 0]], 0.3, lower=True)
    20
    """
    for step, value, *_ in curve:
        if (value <= target) if lower else (value >= target):
            return step
    return None


def _reach(found: dict[str, dict[str, Any]], curve: Curve) -> None:
    """How many steps each row needs to the last values of the rows to reach."""
    with_curve = {name: each["curve"] for name, each in found.items() if each.get("curve")}
    targets = {name: with_curve[name][-1][1] for name in curve.reach if name in with_curve}
    lower = lower_is_better(curve.measure)
    for name, own in with_curve.items():
        steps = {
            row: first_step_reaching(own, target, lower=lower) for row, target in targets.items()
        }
        found[name]["reached"] = steps


class TableLine(NamedTuple):
    """row: its title, on the first of its lines; source: a paper or "ours"; cells: the numbers."""

    row: str
    source: str
    cells: tuple[str, ...]


def headings(content: Content) -> list[str]:
    """Of the cells: measures, validation, steps, time."""
    found = [title(name) for name in _measures(content)]
    summaries = content["summary"].values()
    if any(summary.get("validation") for summary in summaries):
        found.append(VALIDATION_TITLE)
    names = dict.fromkeys(name for each in summaries for name in each.get("reached", ()))
    found += [_as_good_as(name) for name in names]
    return [*found, "steps", "s a run"]


def _as_good_as(name: str) -> str:
    return f"as good as {name} at step"


def _measures(content: Content) -> list[str]:
    """Those of which a line has a number."""
    given = [each["numbers"] for row in content["printed"].values() for each in row]
    given += [summary["test"] for summary in content["summary"].values()]
    return [name for name in content["measures"] if any(name in each for each in given)]


def table_lines(content: Content) -> list[TableLine]:
    """All lines of the table, in the order of the rows."""
    titles = {"untrained": "untrained backbone"}
    titles |= {row["name"]: row["title"] for row in content["rows"]}
    found: list[TableLine] = []
    for name, words in titles.items():
        summary = content["summary"].get(name)
        printed = content["printed"].get(name, [])
        if not summary and not printed:
            continue
        own = [
            TableLine("", each["source"], _of_paper(content, each["numbers"])) for each in printed
        ]
        if summary:
            own += _ours(content, summary)
        found += [own[0]._replace(row=words), *own[1:]]
    return found


def _ours(content: Content, summary: Mapping[str, Any]) -> list[TableLine]:
    seeds = len(summary.get("seeds", ()))
    source = f"ours, {seeds} seed{'s' if seeds > 1 else ''}" if seeds else "ours"
    found = [TableLine("", source, _cells(content, summary["test"], summary))]
    if summary.get("final"):
        found[0] = found[0]._replace(source=f"{source}, chosen step")
        found.append(TableLine("", "ours, last step", _cells(content, summary["final"])))
    if summary.get("held_out"):
        found.append(
            TableLine("", "ours, validation classes held out", _cells(content, summary["held_out"]))
        )
    return found


def _of_paper(content: Content, numbers: Mapping[str, float]) -> tuple[str, ...]:
    cells = [f"{numbers[name]:.1f}" if name in numbers else "" for name in _measures(content)]
    return tuple(cells + [""] * (len(headings(content)) - len(cells)))


def _cells(
    content: Content, measured: Mapping[str, Any], summary: Mapping[str, Any] | None = None
) -> tuple[str, ...]:
    cells = [_percent(measured.get(name)) for name in _measures(content)]
    heads = headings(content)[len(cells) :]
    summary = summary or {}
    steps, seconds = summary.get("steps"), summary.get("seconds")
    last = {
        VALIDATION_TITLE: _percent(summary.get("validation")),
        "steps": " / ".join(f"{step:,}" for step in steps) if steps else "",
        "s a run": f"{seconds['mean']:.0f}" if seconds else "",
    }
    for name, step in summary.get("reached", {}).items():
        last[_as_good_as(name)] = "" if step is None else f"{step:,.0f}"
    return tuple(cells + [last.get(head, "") for head in heads])


def _percent(value: Mapping[str, float] | None) -> str:
    if value is None:
        return ""
    spread = f" ± {100 * value['spread']:.1f}" if value["seeds"] > 1 else ""
    return f"{100 * value['mean']:.1f}{spread}"
