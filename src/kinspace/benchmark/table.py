"""The table of a benchmark: each method beside the first, and whether the difference is chance.

The first method is compared with each other one on the same test pictures, by the mean over seeds
of what each picture scores. Two things vary by chance: which classes are in the test, and the seed.
The first is "above" another only where both agree:

    classes   the paired permutation test by class (`evaluation.compare_queries`), its p-values
              corrected for the number of comparisons by Holm's method, is below 0.05
    seeds     the mean difference is more than two standard errors of the differences over seeds

and "below" likewise; else the table says that they cannot be told apart.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinspace._core.atomic_files import write_atomically, write_json
from kinspace.evaluation.significance import compare_queries, mean_and_spread
from kinspace.evaluation.summary import MEASURES as TITLES

__all__ = ["BenchmarkTable", "compared_rows", "holm", "to_markdown"]

LEVEL = 0.05
ERRORS = 2.0  # standard errors over seeds

PerSeed = Sequence[Mapping[str, NDArray[np.float64]]]  # of each seed: measure -> (queries,)


@dataclass(frozen=True)
class BenchmarkTable:
    """The finished benchmark: its settings, a row a method, the first method first, and notes.

    A row has method, trials, failed, chosen (changes of the recipe), steps, validation (MAP@R on
    held-out classes), recall@1 and map@r (mean, spread, count), and, but for the first method,
    "difference", "low", "high", "p_value" and "verdict" of the first method less it, by MAP@R.
    """

    folder: Path
    settings: dict[str, Any]
    rows: list[dict[str, Any]]
    starts: dict[str, dict[str, float]]
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        names = ("settings", "rows", "starts", "notes")
        return {name: getattr(self, name) for name in names}

    def write(self) -> None:
        """Write benchmark.json and benchmark.md into the folder."""
        write_json(self.folder / "benchmark.json", self.to_dict())
        text = to_markdown(self)
        file = self.folder / "benchmark.md"
        write_atomically(file, lambda part: part.write_text(text, encoding="utf-8"))


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values corrected for their number, by Holm's step-down method.

    >>> [round(p, 3) for p in holm([0.01, 0.04, 0.03])]
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values, kind="stable")
    found = np.zeros(len(p_values))
    highest = 0.0
    for place, index in enumerate(order):
        highest = max(highest, min(1.0, (len(p_values) - place) * p_values[index]))
        found[index] = highest
    return [float(p) for p in found]


def compared_rows(
    scores: Mapping[str, PerSeed], classes: NDArray[Any], *, measure: str = "map@r"
) -> dict[str, dict[str, Any]]:
    """What the table says of each method by its scores; the first one is compared with the others.

    >>> y = np.repeat(np.arange(20), 5)
    >>> good, poor = ({"map@r": value * np.ones(100)} for value in (0.9, 0.4))
    >>> found = compared_rows({"mine": [good, good], "theirs": [poor, poor]}, y)
    >>> found["theirs"]["verdict"], round(found["theirs"]["difference"], 3)
    ('above', 0.5)
    """
    first, *others = scores
    found: dict[str, dict[str, Any]] = {name: _means(each) for name, each in scores.items()}
    ours = np.mean([one[measure] for one in scores[first]], axis=0)
    tests = []
    for name in others:
        theirs = np.mean([one[measure] for one in scores[name]], axis=0)
        tests.append(compare_queries(ours, theirs, classes))
    for name, test, p_value in zip(
        others, tests, holm([test["p_value"] for test in tests]), strict=True
    ):
        by_seed = [
            float(one[measure].mean() - other[measure].mean())
            for one, other in zip(scores[first], scores[name], strict=True)
        ]
        found[name] |= {
            "difference": test["difference"],
            "low": test["low"],
            "high": test["high"],
            "p_value": p_value,
            "by_seed": by_seed,
            "verdict": _verdict(test["difference"], p_value, by_seed),
        }
    return found


def _means(seeds: PerSeed) -> dict[str, Any]:
    return {
        name: mean_and_spread([float(seed[name].mean()) for seed in seeds]) for name in seeds[0]
    }


def _verdict(difference: float, p_value: float, by_seed: Sequence[float]) -> str:
    error = float(np.std(by_seed, ddof=1)) / math.sqrt(len(by_seed)) if len(by_seed) > 1 else 0.0
    if p_value >= LEVEL or abs(difference) <= ERRORS * error:
        return "not told apart"
    return "above" if difference > 0 else "below"


def to_markdown(table: BenchmarkTable) -> str:
    """The table as Markdown, the best first, with its settings and notes."""
    first = table.rows[0]["method"]
    lines = [
        f"| method | Recall@1, % | {TITLES['map@r']}, % | validation | {first} less it | p | "
        f"{first} is | steps | chosen |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    by_precision = sorted(
        table.rows, key=lambda row: -row["map@r"]["mean"] if "map@r" in row else 1.0
    )
    lines += [_line(row, first) for row in by_precision]
    for name, found in table.starts.items():
        means = " | ".join(f"{100 * found[measure]:.1f}" for measure in ("recall@1", "map@r"))
        lines.append(f"| untrained: {name} | {means} | | | | | | |")
    return "\n".join([*lines, "", *(f"- {note}" for note in table.notes), ""])


def _line(row: Mapping[str, Any], first: str) -> str:
    name = row["method"]
    if "map@r" not in row:
        return f"| {name} | no trial ended well | | | | | | | |"
    cells = [f"**{name}**" if name == first else name]
    cells += [_cell(row["recall@1"]), _cell(row["map@r"]), f"{100 * row['validation']:.1f}"]
    if "difference" in row:
        ends = f"{100 * row['low']:+.1f} to {100 * row['high']:+.1f}"
        cells += [f"{100 * row['difference']:+.1f} ({ends})", f"{row['p_value']:.2g}"]
        cells.append(str(row["verdict"]))
    else:
        cells += ["", "", ""]
    chosen = ", ".join(f"{key} {value:g}" for key, value in row["chosen"].items())
    cells += [str(row["steps"]), chosen or "the recipe's own"]
    return f"| {' | '.join(cells)} |"


def _cell(value: Mapping[str, float]) -> str:
    spread = f" ± {100 * value['spread']:.1f}" if value["count"] > 1 else ""
    return f"{100 * value['mean']:.1f}{spread}"
