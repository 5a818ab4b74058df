"""An experiment: a table or figure of a paper as rows to train, with the printed numbers.

A row is a recipe with some settings; a sweep is a row for each value of a key. Settings are dotted
keys of a recipe (`kinspace train --set`), those of the row before those of the experiment. What is
wrong with one is a ValueError that names the key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Any, Literal

from kinspace.recipes.fields import below_one, convert, convert_fields, require_choice
from kinspace.reproduce.measures import RECOVERY, known_measure
from kinspace.reproduce.rows import Curve, Printed, Row, Sweep, file_name, flat

__all__ = ["Experiment"]


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What to run, and what the paper printed.

    data: the set of the paper. sets: settings for other sets, by their name; measures_on: measures
    in place of the usual ones. validate: where a
    recipe holds no classes out, the fraction that a second run of each row holds out, to tell what
    was chosen by; 0: none. untrained: numbers printed for the backbone as it is. profile: a measure
    with @, drawn over its K. scatter: draw the embeddings, which have two dimensions.
    """

    name: str
    title: str
    paper: str
    data: str
    measures: tuple[str, ...]
    measures_on: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    kind: Literal["train", "hierarchy"] = "train"
    recipe: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    sets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    validate: float = 0.0
    untrained: tuple[Printed, ...] | None = None
    curve: Curve | None = None
    profile: str | None = None
    scatter: bool = False
    rows: tuple[Row, ...] = ()
    sweeps: tuple[Sweep, ...] = ()

    def __post_init__(self) -> None:
        convert_fields(self)
        file_name(self.name)
        below_one("validate", self.validate)
        for measure in (*self.measures, *(m for each in self.measures_on.values() for m in each)):
            known_measure(measure)
            if (measure in RECOVERY) != (self.kind == "hierarchy"):
                raise ValueError(f"measures: {measure} is not of kind {self.kind!r}")
        if not self.rows:
            raise ValueError("rows: expected one or more, or sweeps, got none")
        names = [row.name for row in self.rows]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"rows.{twice[0]}: expected one of that name, got several")
        for row in self.rows:
            if (row.recipe or self.recipe) is None:
                raise ValueError(f"rows.{row.name}.recipe: expected, and not there")
        sweeps = [sweep.name for sweep in self.sweeps]
        for name in (name for sweep in self.sweeps for name in sweep.beside):
            require_choice("beside", name, [*names, *sweeps], what="row or sweep")
        for name in self.curve.reach if self.curve else ():
            require_choice("reach", name, names, what="row")
        object.__setattr__(self, "settings", flat(self.settings))
        object.__setattr__(self, "sets", {name: flat(each) for name, each in self.sets.items()})

    @classmethod
    def from_dict(cls, table: Mapping[str, Any]) -> Experiment:
        """What TOML has, with the name added; the rows of sweeps are made."""
        given = dict(table)
        for key in given:
            require_choice(key, key, [each.name for each in fields(cls)], what="key")
        for each in fields(cls):
            if each.default is MISSING and each.default_factory is MISSING:
                _there(each.name, given)
        if given.get("curve") is not None:
            given["curve"] = _part("curve", Curve, given["curve"])
        if given.get("untrained") is not None:
            given["untrained"] = _printed("untrained", given["untrained"])
        rows = [_row(number, row) for number, row in enumerate(_tables("rows", given))]
        sweeps = []
        for number, of_sweep in enumerate(_tables("sweeps", given)):
            sweep, more = _sweep(number, of_sweep)
            sweeps.append(sweep)
            rows += more
        return cls(**{**given, "rows": tuple(rows), "sweeps": tuple(sweeps)})

    def on(self, data: str) -> Experiment:
        """The same with the measures for a data set."""
        return replace(self, measures=tuple(self.measures_on.get(data, self.measures)))

    def only(self, names: Sequence[str]) -> Experiment:
        """The same with these rows, or the rows of these sweeps, alone."""
        if not names:
            return self
        allowed = [*(row.name for row in self.rows), *(sweep.name for sweep in self.sweeps)]
        for name in names:
            require_choice("--only", name, allowed, what="row")
        kept = tuple(row for row in self.rows if row.name in names or row.sweep in names)
        there = {row.name for row in kept} | {row.sweep for row in kept}
        curve = self.curve
        if curve is not None:
            curve = replace(curve, reach=tuple(name for name in curve.reach if name in there))
        sweeps = tuple(
            replace(sweep, beside=tuple(name for name in sweep.beside if name in there))
            for sweep in self.sweeps
            if any(row.sweep == sweep.name for row in kept)
        )
        return replace(self, rows=kept, sweeps=sweeps, curve=curve)


def _there(key: str, table: Mapping[str, Any]) -> None:
    if key not in table:
        raise ValueError(f"{key}: expected, and not there")


def _tables(key: str, given: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    found: tuple[Mapping[str, Any], ...] = convert(
        key, given.get(key, []), tuple[Mapping[str, Any], ...]
    )
    return found


def _part(key: str, cls: Any, table: Any) -> Any:
    table = convert(key, table, Mapping[str, Any])
    own = [each.name for each in fields(cls)]
    try:
        for each in fields(cls):
            if each.default is MISSING and each.default_factory is MISSING:
                _there(each.name, table)
        for name in table:
            require_choice(name, name, own, what="key")
        return cls(**table)
    except ValueError as error:
        raise ValueError(f"{key}.{error}") from None


def _row(number: int, table: Mapping[str, Any]) -> Row:
    key = f"rows.{table.get('name', number)}"
    for own in ("sweep", "x"):
        if own in table:
            raise ValueError(f"{key}.{own}: expected of the rows of a sweep alone")
    row: Row = _part(key, Row, {**table, "printed": _printed(key, table.get("printed", []))})
    return row


def _printed(key: str, tables: Any) -> tuple[Printed, ...]:
    found = []
    for table in convert(f"{key}.printed", tables, tuple[Mapping[str, Any], ...]):
        numbers = {name: each for name, each in table.items() if name not in ("data", "source")}
        own = {name: each for name, each in table.items() if name not in numbers}
        found.append(_part(f"{key}.printed", Printed, {**own, "numbers": numbers}))
    return tuple(found)


def _sweep(number: int, table: Mapping[str, Any]) -> tuple[Sweep, list[Row]]:
    """A sweep and its rows; its printed numbers are lists, one a value."""
    key = f"sweeps.{table.get('name', number)}"
    lists = convert(f"{key}.printed", table.get("printed", []), tuple[Mapping[str, Any], ...])
    sweep: Sweep = _part(key, Sweep, {**table, "printed": ()})
    by_place: dict[int, tuple[Printed, ...]] = {}
    for each in lists:
        for name, numbers in each.items():
            if name not in ("data", "source") and (
                not isinstance(numbers, list) or len(numbers) != len(sweep.values)
            ):
                raise ValueError(
                    f"{key}.printed.{name}: expected a list of {len(sweep.values)}, one a value, "
                    f"got {numbers!r}"
                )
        for place in range(len(sweep.values)):
            one = {name: v[place] if isinstance(v, list) else v for name, v in each.items()}
            by_place[place] = by_place.get(place, ()) + _printed(key, [one])
    try:
        return sweep, sweep.rows(by_place)
    except ValueError as error:
        raise ValueError(f"{key}.{error}") from None
