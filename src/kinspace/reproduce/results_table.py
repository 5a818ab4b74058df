"""An experiment's results as lines: the numbers of the papers, and below them ours.

Ours are percent, mean ± standard deviation over the seeds. A line is a paper's or ours, never both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kinspace.reproduce.measures import title

__all__ = ["Line", "headings", "lines"]

Content = Mapping[str, Any]


class Line(NamedTuple):
    """Who: the row's title, on its first line; whose: a source or "ours"; then the cells."""

    who: str
    whose: str
    cells: tuple[str, ...]


def headings(content: Content) -> list[str]:
    """Of the cells: measures, validation, steps, time."""
    found = [title(name) for name in _measures(content)]
    summaries = content["summary"].values()
    if any(summary.get("validation") for summary in summaries):
        found.append("validation R@1")
    goals = dict.fromkeys(name for each in summaries for name in each.get("reached", ()))
    found += [_as_good_as(name) for name in goals]
    return [*found, "steps", "s a run"]


def _as_good_as(name: str) -> str:
    return f"as good as {name} at step"


def _measures(content: Content) -> list[str]:
    """Those of which a line has a number."""
    given = [each["numbers"] for row in content["printed"].values() for each in row]
    given += [summary["test"] for summary in content["summary"].values()]
    return [name for name in content["measures"] if any(name in each for each in given)]


def lines(content: Content) -> list[Line]:
    """All lines of the table, in the order of the rows."""
    titles = {"untrained": "untrained backbone"}
    titles |= {row["name"]: row["title"] for row in content["rows"]}
    found: list[Line] = []
    for name, words in titles.items():
        summary = content["summary"].get(name)
        printed = content["printed"].get(name, [])
        if not summary and not printed:
            continue
        own = [Line("", each["source"], _of_paper(content, each["numbers"])) for each in printed]
        if summary:
            own += _ours(content, summary)
        found += [own[0]._replace(who=words), *own[1:]]
    return found


def _ours(content: Content, summary: Mapping[str, Any]) -> list[Line]:
    seeds = len(summary.get("seeds", ()))
    whose = f"ours, {seeds} seed{'s' if seeds > 1 else ''}" if seeds else "ours"
    found = [Line("", whose, _cells(content, summary["test"], summary))]
    if summary.get("final"):
        found[0] = found[0]._replace(whose=f"{whose}, chosen step")
        found.append(Line("", "ours, last step", _cells(content, summary["final"])))
    if summary.get("held_out"):
        found.append(
            Line("", "ours, validation classes held out", _cells(content, summary["held_out"]))
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
        "validation R@1": _percent(summary.get("validation")),
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
