"""A recipe with what the options of a command change in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kinspace.recipes import Recipe, parse_set, with_changes
from kinspace.recipes.batch_size import with_batch_size

__all__ = ["with_options"]


def with_options(
    recipe: Recipe,
    change: Sequence[str] | None,
    steps: int | None,
    batch: int | None,
    others: Mapping[str, Any] | None = None,
) -> Recipe:
    """The recipe after --set, --steps, --batch and other keys; None changes nothing.

    >>> from kinspace.recipes import read_recipe
    >>> recipe = with_options(read_recipe("nra"), ["loss.alpha=2"], 7, None, {"model.dim": 32})
    >>> recipe.loss.options["alpha"], recipe.schedule.steps, recipe.model.dim
    (2.0, 7, 32)
    """
    asked = dict(parse_set(text) for text in change or ())
    asked |= {key: value for key, value in (others or {}).items() if value is not None}
    if steps is not None:
        asked["schedule.steps"] = steps
    recipe = with_changes(recipe, asked) if asked else recipe
    return recipe if batch is None else with_batch_size(recipe, batch)
