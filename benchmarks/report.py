"""What was measured, as text, Markdown and JSON, and whether it meets the requirements."""

from __future__ import annotations

from dataclasses import dataclass

from measure import MEGABYTE, Measurement
from peers import PEERS

# Times as fast as pytorch-metric-learning; all other cases: 1. N-pair takes every sample as an
# anchor, sixteen times the pairs that are compared there.
LEAST_SPEEDUP = {
    ("triplet_all", 512): 10.0,
    ("triplet_all", 1024): 10.0,
    ("triplet_semi_hard", 512): 10.0,
    ("triplet_semi_hard", 1024): 10.0,
    ("lifted_structure", 512): 100.0,
}
N_PAIR = 0.7
Table = list[list[str]]


@dataclass(frozen=True)
class Row:
    """One case at one batch size."""

    name: str
    size: int
    ours: Measurement
    peer: Measurement | None = None

    @property
    def label(self) -> str:
        return f"{self.name} at {self.size}"

    @property
    def speedup(self) -> float | None:
        return _ratio(self.peer.median, self.ours.median) if self.peer else None

    @property
    def memory_saving(self) -> float | None:
        return _ratio(self.peer.peak, self.ours.peak) if self.peer else None

    def summary(self) -> dict[str, object]:
        return {
            "name": self.name,
            "size": self.size,
            "ours": self.ours.summary(),
            "pml": self.peer.summary() if self.peer else None,
            "speedup": self.speedup,
            "memory_saving": self.memory_saving,
        }


@dataclass(frozen=True)
class Check:
    """One requirement. passed is None where the run did not measure it."""

    text: str
    passed: bool | None
    detail: str

    @property
    def verdict(self) -> str:
        return {True: "pass", False: "FAIL", None: "not measured"}[self.passed]


def _ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def shared_table(rows: list[Row]) -> Table:
    head = ["loss", "batch", "ours ms", "PML ms", "speedup", "ours MB", "PML MB", "memory ratio"]
    table = [head]
    for row in rows:
        if row.peer is None:
            continue
        table.append(
            [
                row.name,
                str(row.size),
                _time(row.ours),
                _time(row.peer),
                _times(row.speedup),
                _memory(row.ours),
                _memory(row.peer),
                _times(row.memory_saving),
            ]
        )
    return table


def own_table(rows: list[Row]) -> Table:
    """Every case of ours."""
    head = ["case", "batch", "ms", "MB"]
    return [head] + [[row.name, str(row.size), _time(row.ours), _memory(row.ours)] for row in rows]


def pairs_table(rows: list[Row]) -> Table:
    shown = {row.name for row in rows if row.peer}
    table = [["ours", "pytorch-metric-learning", "difference"]]
    for name, peer in PEERS.items():
        if name in shown:
            table.append([name, peer.title, peer.difference or "none: the same value"])
    return table


def checks(rows: list[Row]) -> list[Check]:
    return [*_speed_checks(rows), _memory_check(rows), _value_check(rows), _all_ran(rows)]


def _speed_checks(rows: list[Row]) -> list[Check]:
    found = {(row.name, row.size): row for row in rows}
    result = []
    for (name, size), factor in LEAST_SPEEDUP.items():
        row = found.get((name, size))
        passed, detail = _fast_enough(row, factor) if row else (None, "")
        result.append(Check(f"{name} at {size}: at least {factor:g}x", passed, detail))
    others = [row for row in rows if row.peer and (row.name, row.size) not in LEAST_SPEEDUP]
    for text, factor, some in (
        (f"n_pair: at least {N_PAIR:g}x", N_PAIR, [row for row in others if row.name == "n_pair"]),
        ("every other shared loss: at least 1x", 1.0, [r for r in others if r.name != "n_pair"]),
    ):
        verdicts = [(row, *_fast_enough(row, factor)) for row in some]
        slow = [f"{row.label} {detail}" for row, passed, detail in verdicts if passed is False]
        result.append(_none_of(text, slow, any(passed is not None for _, passed, _ in verdicts)))
    lifted = found.get(("lifted_structure", 4096))
    peak = lifted.ours.peak if lifted else None
    result.append(
        Check(
            "lifted_structure at 4096: under 2 GB",
            None if lifted is None else peak is not None and peak < 2e9,
            f"{_memory(lifted.ours)} MB" if lifted else "",
        )
    )
    return result


def _fast_enough(row: Row, factor: float) -> tuple[bool | None, str]:
    if row.ours.problem:
        return False, row.ours.problem
    if row.peer is None:
        return None, ""
    if row.peer.problem:  # no time of theirs; a call broken off still gives a bound
        bound = _ratio(row.peer.given_up, row.ours.median)
        return bound is None or bound >= factor, f"PML {row.peer.problem}"
    return row.speedup is not None and row.speedup >= factor, _times(row.speedup)


def _memory_check(rows: list[Row]) -> Check:
    both = [(row, row.memory_saving) for row in rows if row.memory_saving is not None]
    more = [f"{row.label} {_times(saving)}" for row, saving in both if saving < 1]
    return _none_of("every shared loss: no more memory than PML", more, bool(both))


def _value_check(rows: list[Row]) -> Check:
    """Where the formulas are the same the values are, else the comparison means little."""
    apart, measured = [], False
    for row in rows:
        ours, other = row.ours.value, row.peer.value if row.peer else None
        if ours is None or other is None or PEERS[row.name].difference:
            continue
        measured = True
        if abs(ours - other) > 1e-3 * max(abs(ours), abs(other)):
            apart.append(f"{row.label} {ours:.6g} and {other:.6g}")
    return _none_of("every pair of the same formula: the same value", apart, measured)


def _all_ran(rows: list[Row]) -> Check:
    failed = [f"{row.label} {row.ours.problem}" for row in rows if row.ours.problem]
    return _none_of("every case of ours: ran", failed, bool(rows))


def _none_of(text: str, offenders: list[str], measured: bool) -> Check:
    return Check(text, not offenders if measured else None, "; ".join(offenders))


def _time(measurement: Measurement) -> str:
    median = measurement.median
    return measurement.problem.split(":")[0] if median is None else _digits(median)


def _memory(measurement: Measurement) -> str:
    return "" if measurement.peak is None else _digits(measurement.peak / MEGABYTE)


def _times(ratio: float | None) -> str:
    return "" if ratio is None else f"{_digits(ratio)}x"


def _digits(value: float) -> str:
    """About three digits, without an exponent."""
    places = 0 if value >= 100 else 1 if value >= 10 else 2 if value >= 0.1 else 3
    return f"{value:,.{places}f}"


def to_text(heading: str, rows: list[Row], verdicts: list[Check]) -> str:
    parts = [heading, _as_text(own_table(rows))]
    if any(row.peer for row in rows):
        parts += [_as_text(pairs_table(rows), numbers=False), _as_text(shared_table(rows))]
    parts.append("\n".join(f"{c.verdict:12}  {c.text}{_after(': ', c.detail)}" for c in verdicts))
    return "\n\n".join(parts)


def to_markdown(heading: str, rows: list[Row], verdicts: list[Check]) -> str:
    marks = {True: "[x]", False: "[ ]", None: "[ ] (not measured)"}
    parts = [heading]
    parts.append(
        "\n".join(f"- {marks[c.passed]} {c.text}{_after(': ', c.detail)}" for c in verdicts)
    )
    if any(row.peer for row in rows):
        parts += ["### Beside pytorch-metric-learning", _as_markdown(shared_table(rows))]
        parts += ["### What is compared", _as_markdown(pairs_table(rows), numbers=False)]
    parts += ["### All of ours", _as_markdown(own_table(rows))]
    return "\n\n".join(parts) + "\n"


def _after(sign: str, text: str) -> str:
    return f"{sign}{text}" if text else ""


def _as_text(table: Table, *, numbers: bool = True) -> str:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for line in table:
        first = line[0].ljust(widths[0])
        rest = [
            cell.rjust(width) if numbers else cell.ljust(width)
            for cell, width in zip(line[1:], widths[1:], strict=True)
        ]
        lines.append("  ".join([first, *rest]).rstrip())
    return "\n".join(lines)


def _as_markdown(table: Table, *, numbers: bool = True) -> str:
    rule = ["---", *["---:" if numbers else "---"] * (len(table[0]) - 1)]
    return "\n".join(f"| {' | '.join(line)} |" for line in [table[0], rule, *table[1:]])
