"""Experiments by name, from a TOML file, or from a dict of the same form.

An unknown key or value is an error that names the file and the key.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import MISSING, fields
from importlib.resources.abc import Traversable
from typing import Any

from kinspace.recipes.fields import convert, require_choice
from kinspace.recipes.recipe_files import load_toml, packaged_toml_files, toml_path
from kinspace.reproduce.experiment import Curve, Experiment, Printed, Row, Sweep

__all__ = ["experiment_from_dict", "experiment_names", "read_experiment"]


def experiment_names() -> list[str]:
    """The names that `read_experiment` knows.

    >>> "almn" in experiment_names()
    True
    """
    return list(_files())


def read_experiment(name_or_path: str | os.PathLike[str]) -> Experiment:
    """An experiment by its name, or from a TOML file of your own.

    >>> read_experiment("almn").rows[-1].title
    'ALMN, β = 3'
    >>> read_experiment("almm")
    Traceback (most recent call last):
    ValueError: NAME: unknown experiment 'almm'; did you mean 'almn'?
    """
    path: Traversable | None = toml_path(name_or_path)
    where = str(name_or_path)
    if path is None:
        files = _files()
        path = files[require_choice("NAME", where, files, what="experiment")]
        where = f"experiments/{path.name}"
    return load_toml(path, where, experiment_from_dict)


def experiment_from_dict(table: Mapping[str, Any]) -> Experiment:
    """An experiment from the content of its TOML file, with the name added.

    >>> rows = [{"name": "plain", "recipe": "triplet"}]
    >>> texts = {"name": "mine", "title": "Triplet", "paper": "Ours", "data": "moths"}
    >>> experiment_from_dict({**texts, "measures": ["nmi"], "rows": rows}).rows[0].title
    'plain'
    """
    given = dict(table)
    for key in given:
        require_choice(key, key, [each.name for each in fields(Experiment)], what="key")
    _require_fields(Experiment, given)
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
    return Experiment(**{**given, "rows": tuple(rows), "sweeps": tuple(sweeps)})


def _files() -> dict[str, Traversable]:
    return packaged_toml_files("kinspace.reproduce", "experiments")


def _require_fields(cls: Any, table: Mapping[str, Any]) -> None:
    """Every field without a default is in the table."""
    for each in fields(cls):
        no_default = each.default is MISSING and each.default_factory is MISSING
        if no_default and each.name not in table:
            raise ValueError(f"{each.name}: expected, and not there")


def _tables(key: str, given: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    found: tuple[Mapping[str, Any], ...] = convert(
        key, given.get(key, []), tuple[Mapping[str, Any], ...]
    )
    return found


def _part(key: str, cls: Any, table: Any) -> Any:
    table = convert(key, table, Mapping[str, Any])
    own = [each.name for each in fields(cls)]
    try:
        _require_fields(cls, table)
        for name in table:
            require_choice(name, name, own, what="key")
        return cls(**table)
    except ValueError as error:
        raise ValueError(f"{key}.{error}") from None


def _row(number: int, table: Mapping[str, Any]) -> Row:
    key = f"rows.{table.get('name', number)}"
    for own in ("sweep", "x"):
        if own in table:
            raise ValueError(f"{key}.{own}: expected only in the rows of a sweep")
    given = {**table, "printed": _printed(key, table.get("printed", []))}
    if "judged_by" in given:  # the key's name in earlier versions
        given.setdefault("classifier", given.pop("judged_by"))
    row: Row = _part(key, Row, given)
    return row


def _printed(key: str, tables: Any) -> tuple[Printed, ...]:
    found = []
    for table in convert(f"{key}.printed", tables, tuple[Mapping[str, Any], ...]):
        numbers = {name: each for name, each in table.items() if name not in ("data", "source")}
        own = {name: each for name, each in table.items() if name not in numbers}
        found.append(_part(f"{key}.printed", Printed, {**own, "numbers": numbers}))
    return tuple(found)


def _sweep(number: int, table: Mapping[str, Any]) -> tuple[Sweep, list[Row]]:
    """A sweep and its rows; its printed numbers are lists, one a value or "none"."""
    key = f"sweeps.{table.get('name', number)}"
    lists = convert(f"{key}.printed", table.get("printed", []), tuple[Mapping[str, Any], ...])
    sweep: Sweep = _part(key, Sweep, {**table, "printed": ()})
    by_position: dict[int, tuple[Printed, ...]] = {}
    for each in lists:
        for name, numbers in each.items():
            if name not in ("data", "source") and (
                not isinstance(numbers, list) or len(numbers) != len(sweep.values)
            ):
                raise ValueError(
                    f"{key}.printed.{name}: expected a list of {len(sweep.values)}, one a value, "
                    f"got {numbers!r}"
                )
        for position in range(len(sweep.values)):
            one = {name: v[position] if isinstance(v, list) else v for name, v in each.items()}
            one = {name: value for name, value in one.items() if value != "none"}
            if len(one) > 2:  # more than data and source
                by_position[position] = by_position.get(position, ()) + _printed(key, [one])
    try:
        return sweep, sweep.rows(by_position)
    except ValueError as error:
        raise ValueError(f"{key}.{error}") from None
