"""What differs between runs: data, split, backbone and every setting of the recipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["conclusion", "run_differences", "settings_of"]

WORDS = ("about", "source", "name", "tune", "fine_tuning")  # of a recipe: no settings of a training
SURE = 0.05  # p-value


def settings_of(about: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of a run by name, from its run.json.

    >>> settings_of({"data": "a", "recipe": {"loss": {"name": "nra"}, "about": "..."}, "seed": 1})
    {'data': 'a', 'loss.name': 'nra'}
    """
    found = {name: about[name] for name in ("data", "split", "pictures") if name in about}
    recipe = {key: value for key, value in about.get("recipe", {}).items() if key not in WORDS}
    found |= dict(_flat(recipe))
    return dict(_flat(found))


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def run_differences(groups: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """The settings that differ between groups of runs, by the runs' run.json.

    Each has the name of the setting, as `--set` takes it, and the values of each group.

    >>> nra, triplet = ({"recipe": {"loss": {"name": name}}} for name in ("nra", "triplet"))
    >>> run_differences({"one": [nra], "two": [triplet]})
    [{'setting': 'loss.name', 'values': {'one': ['nra'], 'two': ['triplet']}}]
    """
    of = {name: [settings_of(about) for about in some] for name, some in groups.items()}
    names = dict.fromkeys(key for some in of.values() for one in some for key in one)
    found = []
    for key in names:
        values: dict[str, list[Any]] = {}
        for group, some in of.items():
            own = values.setdefault(group, [])
            for one in some:
                if one.get(key) not in own:
                    own.append(one.get(key))
        if any(own != next(iter(values.values())) for own in values.values()):
            found.append({"setting": key, "values": values})
    return found


def conclusion(test: Mapping[str, Any]) -> str:
    """A test of two groups in a sentence.

    >>> by = {"difference": -0.02, "low": -0.03, "high": -0.01, "p_value": 0.01}
    >>> conclusion({"first": "a", "second": "b", "by_picture": by})
    'b has a Recall@1 that is 2.0 points higher than that of a (95 % interval 1.0 to 3.0, p =
    0.01).'
    """
    by, first, second = test["by_picture"], test["first"], test["second"]
    if by is None:
        return f"{first} and {second} were tested on different pictures: nothing can be concluded."
    low, high, p_value = 100 * by["low"], 100 * by["high"], f"p = {by['p_value']:.2g}"
    if by["p_value"] > SURE:
        return (
            f"It is not clear which of {first} and {second} is better: Recall@1 differs by "
            f"{100 * by['difference']:+.1f} points (95 % interval {low:+.1f} to {high:+.1f}, "
            f"{p_value})."
        )
    if by["difference"] < 0:
        first, second, low, high = second, first, -high, -low
    return (
        f"{first} has a Recall@1 that is {100 * abs(by['difference']):.1f} points higher than that "
        f"of {second} (95 % interval {low:.1f} to {high:.1f}, {p_value})."
    )
