"""An experiment: a table or figure of a paper as rows to train, with the printed numbers.

A row is a recipe with some settings; a sweep is a row for each value of a key. Settings are dotted
keys of a recipe (`kinspace train --set`); those of a row override those of the experiment. Every
class checks its fields, whether read from TOML or made in Python. Errors name the key.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from kinspace.recipes.fields import at_least, below_one, convert, convert_fields, require_choice
from kinspace.reproduce.table_measures import (
    CLASSIFIERS,
    LOSS,
    RECOVERY,
    VALIDATION,
    known_measure,
)

__all__ = ["Curve", "Experiment", "Printed", "Row", "Sweep"]

NAME = re.compile(r"[a-z0-9][a-z0-9_.+-]*")


@dataclass(frozen=True)
class Printed:
    """Numbers that a paper prints for one data set, in percent, with their source."""

    data: str
    source: str
    numbers: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        convert_fields(self)
        for name, number in self.numbers.items():
            known_measure(name)
            convert(name, number, float)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of the table: a recipe with its settings.

    Args:
        name: for file names and `--only`.
        title: for readers; the name by default.
        recipe: in place of the experiment's.
        regularizers: `NAME:WEIGHT`, in place of the recipe's.
        settings: dotted keys of the recipe.
        sets: settings for single data sets, by the name of the set.
        printed: numbers of papers.
        classifier: the classifier of the measure "error".
        views: whether "views_recall@K" is measured, at six times the cost of a test.
        micro_batch: samples through the model at a time.
        sweep, x: set by the sweep that made the row.
    """

    name: str
    title: str = ""
    recipe: str | None = None
    regularizers: tuple[str, ...] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    sets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    printed: tuple[Printed, ...] = ()
    classifier: str = "soft_knn"
    views: bool = False
    micro_batch: int | None = None
    sweep: str | None = None
    x: Any = None

    def __post_init__(self) -> None:
        convert_fields(self)
        _check_name(self.name)
        require_choice("classifier", self.classifier, CLASSIFIERS, what="classifier")
        at_least(self, 1, "micro_batch")
        if self.regularizers == ():
            raise ValueError("regularizers: expected one or more; for none, a recipe without them")
        object.__setattr__(self, "title", self.title or self.name)
        object.__setattr__(self, "settings", _flat(self.settings))
        object.__setattr__(self, "sets", {name: _flat(each) for name, each in self.sets.items()})


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A row for each value of a key, and a figure of them.

    Args:
        name: for file names and `--only`.
        label: the axis of the figure.
        key: a dotted key, or several, whose values are then lists.
        values: one a row.
        shown: labels of the values, where the values do not speak for themselves.
        log: whether the axis is logarithmic.
        beside: rows drawn as level lines, and other sweeps of the same values, which then have no
            figure of their own.
        recipe, regularizers, settings, printed, micro_batch: as in `Row`.
    """

    name: str
    label: str
    key: str | tuple[str, ...]
    values: tuple[Any, ...]
    shown: tuple[str, ...] | None = None
    log: bool = False
    beside: tuple[str, ...] = ()
    recipe: str | None = None
    regularizers: tuple[str, ...] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    printed: tuple[Printed, ...] = ()  # in a file a list, one a value: "recall@1 = [...]"
    micro_batch: int | None = None

    def __post_init__(self) -> None:
        convert_fields(self)
        _check_name(self.name)
        if not self.values:
            raise ValueError("values: expected one or more, got none")
        for value in self.values:
            if not isinstance(self.key, str) and (
                not isinstance(value, list) or len(value) != len(self.key)
            ):
                raise ValueError(
                    f"values: expected a list of {len(self.key)}, one a key, got {value!r}"
                )
        if self.shown is not None and len(self.shown) != len(self.values):
            raise ValueError(
                f"shown: expected {len(self.values)}, one a value, got {len(self.shown)}"
            )

    def rows(self, printed: Mapping[int, tuple[Printed, ...]]) -> list[Row]:
        """The rows of the values; `printed` by the position of the value."""
        made = []
        for position, value in enumerate(self.values):
            keys = (self.key,) if isinstance(self.key, str) else self.key
            each = (value,) if isinstance(self.key, str) else value
            text = "x".join(f"{one:g}" if isinstance(one, float) else str(one) for one in each)
            text = text if self.shown is None else self.shown[position]
            made.append(
                Row(
                    name=f"{self.name}-{text}",
                    title=f"{self.label} = {text.replace('x', ' x ')}",
                    recipe=self.recipe,
                    regularizers=self.regularizers,
                    settings={**_flat(self.settings), **dict(zip(keys, each, strict=True))},
                    printed=printed.get(position, ()),
                    micro_batch=self.micro_batch,
                    sweep=self.name,
                    x=value if isinstance(self.key, str) and self.shown is None else text,
                )
            )
        return made


@dataclass(frozen=True)
class Curve:
    """A measure over the steps of each run.

    Args:
        measure: of the test part, "validation_recall@1", or "loss", that of the training.
        every: steps between two points.
        reach: rows; the table shows how many steps each row needs to reach their last values.
    """

    measure: str = "error"
    every: int = 100
    reach: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        convert_fields(self)
        if self.measure not in (VALIDATION, LOSS):
            known_measure(self.measure)
        at_least(self, 1, "every")


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What to run, and what the paper printed.

    Args:
        name: of the results file.
        title, paper: for readers.
        data: the data set of the paper.
        measures: columns of the table.
        measures_on: other columns for single data sets.
        kind: "train", or "hierarchy" for classes merged in pairs.
        recipe: of all rows that name none.
        settings: dotted keys of the recipe, for all rows.
        sets: settings for single data sets.
        validate: where a recipe holds no classes out, the fraction that a second run of each row
            holds out, to choose settings by; 0 for none.
        untrained: printed numbers of the backbone as it is.
        curve: a figure over the steps.
        profile: a measure with @, drawn over its K.
        scatter: the part whose embeddings are drawn, by a t-SNE where they have more than two
            dimensions, with the clusters of runs that have some.
        attribute: the one that the scatter highlights, of data that has attributes.
        rows, sweeps: what to train; `rows` contains those of the sweeps.
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
    scatter: Literal["train", "test"] | None = None
    attribute: str | None = None
    rows: tuple[Row, ...] = ()
    sweeps: tuple[Sweep, ...] = ()

    def __post_init__(self) -> None:
        convert_fields(self)
        _check_name(self.name)
        below_one("validate", self.validate)
        for measure in (*self.measures, *(m for each in self.measures_on.values() for m in each)):
            known_measure(measure)
            if (measure in RECOVERY) != (self.kind == "hierarchy"):
                raise ValueError(f"measures: {measure} is not of kind {self.kind!r}")
        self._check_rows()
        object.__setattr__(self, "settings", _flat(self.settings))
        object.__setattr__(self, "sets", {name: _flat(each) for name, each in self.sets.items()})

    def _check_rows(self) -> None:
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
        left = {row.name for row in kept} | {row.sweep for row in kept}
        curve = self.curve
        if curve is not None:
            curve = replace(curve, reach=tuple(name for name in curve.reach if name in left))
        sweeps = tuple(
            replace(sweep, beside=tuple(name for name in sweep.beside if name in left))
            for sweep in self.sweeps
            if any(row.sweep == sweep.name for row in kept)
        )
        return replace(self, rows=kept, sweeps=sweeps, curve=curve)


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Nested tables as dotted keys.

    >>> _flat({"loss": {"beta": 3}, "optimizer.lr": 1e-5})
    {'loss.beta': 3, 'optimizer.lr': 1e-05}
    """
    found: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            found |= {f"{key}.{inner}": each for inner, each in _flat(value).items()}
        else:
            found[key] = value
    return found


def _check_name(name: str) -> None:
    """A name that files may have too."""
    if not NAME.fullmatch(name):
        raise ValueError(f"name: expected small letters, digits and _ . + -, got {name!r}")
