"""Checks of a dataclass's fields: types by the annotations, ranges by name."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from kinspace._core import checks
from kinspace.recipes.field_types import fitted, hints_of

__all__ = ["above_zero", "at_least", "below_one", "typed_fields"]


def typed_fields(part: Any) -> None:
    """Every field as its annotation has it."""
    cls: Any = type(part)  # mypy takes no type for hashable
    hints = hints_of(cls)
    for each in fields(part):
        value = fitted(each.name, getattr(part, each.name), hints[each.name])
        object.__setattr__(part, each.name, value)


def below_one(name: str, value: float) -> None:
    """A share: 0 or more, and less than 1."""
    if not 0 <= value < 1:
        raise ValueError(f"{name}: expected a number from 0 to below 1, got {value!r}")


def above_zero(part: Any, *names: str) -> None:
    """These fields are above 0, or None."""
    for name in names:
        if getattr(part, name) is not None:
            checks.positive(name, getattr(part, name))


def at_least(part: Any, least: int, *names: str) -> None:
    """These fields are `least` or more, or None."""
    for name in names:
        if getattr(part, name) is not None:
            checks.number(name, getattr(part, name), at_least=least)
