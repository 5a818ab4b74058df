"""One value of a recipe by its dotted key: loss.beta, regularizers.density.weight."""

from __future__ import annotations

from typing import Any

__all__ = ["set_dotted"]


def set_dotted(table: dict[str, Any], key: str, value: Any) -> None:
    """Set a value in `Recipe.to_dict()`; a regularizer goes by its name. New tables are made.

    >>> table = {"loss": {"name": "almn", "beta": 3.0}, "regularizers": [{"name": "density"}]}
    >>> set_dotted(table, "loss.beta", 2)
    >>> set_dotted(table, "regularizers.density.weight", 5)
    >>> table
    {'loss': {'name': 'almn', 'beta': 2}, 'regularizers': [{'name': 'density', 'weight': 5}]}
    """
    *path, last = key.split(".")
    place = table
    if path and path[0] == "regularizers":
        place, path = _regularizer(table, key), path[2:]
    for name in path:
        place = place.setdefault(name, {})
        if not isinstance(place, dict):
            raise ValueError(f"{key}: unknown key; {name} is a value, not a table")
    place[last] = value


def _regularizer(table: dict[str, Any], key: str) -> dict[str, Any]:
    parts: dict[str, dict[str, Any]] = {part["name"]: part for part in table["regularizers"]}
    _, name, *rest = key.split(".")
    if name not in parts or not rest:
        there = ", ".join(parts) or "none"
        raise ValueError(
            f"{key}: expected regularizers.NAME.OPTION with one of the recipe's own, got {name!r}; "
            f"there is: {there}; --regularizer NAME:WEIGHT puts others in"
        )
    return parts[name]
