"""The parts of an experiment: rows, sweeps of rows, curves, printed numbers.

Each checks itself, whether read from TOML or made in Python. Errors name the key within the part.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kinspace.recipes.fields import at_least, convert, convert_fields, require_choice
from kinspace.reproduce.measures import CLASSIFIERS, VALIDATION, known_measure

__all__ = ["Curve", "Printed", "Row", "Sweep", "file_name", "flat"]

NAME = re.compile(r"[a-z0-9][a-z0-9_.+-]*")


@dataclass(frozen=True)
class Printed:
    """Numbers of a paper, in percent as printed, for one data set and where they stand."""

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
    """One line of the table. name: for files and --only; title: for readers.

    regularizers: NAME:WEIGHT, in place of the recipe's. sets: settings for other data sets, by
    their names. judged_by: the classifier of the measure "error". views: whether "views_recall@K"
    is measured, at six times the time of a test. micro_batch: samples through the model at a time.
    sweep, x: where a sweep made it.
    """

    name: str
    title: str = ""
    recipe: str | None = None
    regularizers: tuple[str, ...] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    sets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    printed: tuple[Printed, ...] = ()
    judged_by: str = "soft_knn"
    views: bool = False
    micro_batch: int | None = None
    sweep: str | None = None
    x: Any = None

    def __post_init__(self) -> None:
        convert_fields(self)
        file_name(self.name)
        require_choice("judged_by", self.judged_by, CLASSIFIERS, what="classifier")
        at_least(self, 1, "micro_batch")
        if self.regularizers == ():
            raise ValueError("regularizers: expected one or more; for none, a recipe without them")
        object.__setattr__(self, "title", self.title or self.name)
        object.__setattr__(self, "settings", flat(self.settings))
        object.__setattr__(self, "sets", {name: flat(each) for name, each in self.sets.items()})


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A row for each value of a key, and a figure of them. key: one, or several with lists.

    shown: what the values are called, where they do not say it themselves. log: the axis. beside:
    rows drawn as level lines, and other sweeps of the same values, which then have no figure.
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
    printed: tuple[Printed, ...] = ()  # of all values: "recall@1 = [...]" in the file
    micro_batch: int | None = None

    def __post_init__(self) -> None:
        convert_fields(self)
        file_name(self.name)
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
        """The rows of the values; printed: by the place of the value."""
        made = []
        for place, value in enumerate(self.values):
            keys = (self.key,) if isinstance(self.key, str) else self.key
            each = (value,) if isinstance(self.key, str) else value
            text = "x".join(f"{one:g}" if isinstance(one, float) else str(one) for one in each)
            text = text if self.shown is None else self.shown[place]
            made.append(
                Row(
                    name=f"{self.name}-{text}",
                    title=f"{self.label} = {text.replace('x', ' x ')}",
                    recipe=self.recipe,
                    regularizers=self.regularizers,
                    settings={**flat(self.settings), **dict(zip(keys, each, strict=True))},
                    printed=printed.get(place, ()),
                    micro_batch=self.micro_batch,
                    sweep=self.name,
                    x=value if isinstance(self.key, str) and self.shown is None else text,
                )
            )
        return made


@dataclass(frozen=True)
class Curve:
    """A measure over the steps of each run, of the test part or "validation_recall@1".

    every: steps between two points. reach: rows; how many steps the others need to their last
    values is told.
    """

    measure: str = "error"
    every: int = 100
    reach: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        convert_fields(self)
        if self.measure != VALIDATION:
            known_measure(self.measure)
        at_least(self, 1, "every")


def flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Nested tables as dotted keys.

    >>> flat({"loss": {"beta": 3}, "optimizer.lr": 1e-5})
    {'loss.beta': 3, 'optimizer.lr': 1e-05}
    """
    found: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            found |= {f"{key}.{inner}": each for inner, each in flat(value).items()}
        else:
            found[key] = value
    return found


def file_name(name: str) -> None:
    """A name that files may have too."""
    if not NAME.fullmatch(name):
        raise ValueError(f"name: expected small letters, digits and _ . + -, got {name!r}")
