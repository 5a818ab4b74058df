"""Fields and options of a recipe: their types, ranges and defaults.

Types are strict: a whole number passes for a number, and nothing else for another type. TOML has
no null: where None is allowed it is written "none".
"""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from kinspace._core import checks

__all__ = [
    "above_zero",
    "at_least",
    "below_one",
    "convert",
    "convert_fields",
    "convert_options",
    "default_options",
    "require_choice",
    "type_hints",
]

# arguments that the run sets for a loss, a sampler or a backbone: not options of a recipe
SET_BY_THE_RUN = (
    *("num_classes", "dim", "original", "labels", "index", "in_channels"),
    *("seed", "rank", "world_size"),
)
WORDS: dict[Any, str] = {
    int: "a whole number",
    float: "a finite number",
    str: "a text",
    bool: "true or false",
    type(None): "'none'",
    Mapping: "a table",
    tuple: "a list",
}


def require_choice(key: str, word: str, allowed: Iterable[str], *, what: str) -> str:
    """The word, after a check that it is one of the allowed ones.

    >>> require_choice("loss.name", "triplets", ["nra", "triplet"], what="loss")
    Traceback (most recent call last):
    ValueError: loss.name: unknown loss 'triplets'; did you mean 'triplet'? choose from: nra, ...
    """
    words = dict.fromkeys(allowed)
    if not words:
        raise ValueError(f"{key}: unknown {what} {word!r}; there is none")
    try:
        checks.lookup(what, word, words)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None
    return word


@cache
def type_hints(typed: Any) -> dict[str, Any]:
    """The type hints of a class or function, by name.

    >>> type_hints(type_hints.__wrapped__)["return"]
    dict[str, typing.Any]
    """
    return get_type_hints(typed)


def convert(key: str, value: Any, hint: Any) -> Any:
    """The value in the type of the hint: 3 becomes 3.0 for a float, and a list a tuple.

    >>> convert("optimizer.lr", 1, float), convert("model.dim", "none", int | None)
    (1.0, None)
    >>> convert("optimizer.lr", "3", float)
    Traceback (most recent call last):
    ValueError: optimizer.lr: expected a finite number, got '3'
    """
    fits, converted = _convert(value, hint)
    if not fits:
        raise ValueError(f"{key}: expected {_words(hint)}, got {value!r}")
    return converted


def _convert(value: Any, hint: Any) -> tuple[bool, Any]:
    origin = get_origin(hint)
    if hint is Any:
        return True, value
    if origin in (Union, types.UnionType):
        return _convert_one_of(value, get_args(hint))
    if origin is Literal:
        return value in get_args(hint), value
    if origin is tuple:
        return _convert_each(value, get_args(hint)[0])
    if origin is Mapping:
        words = isinstance(value, Mapping) and all(isinstance(key, str) for key in value)
        return words, dict(value) if words else value
    if hint is float:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        fits = number and math.isfinite(value)
        return fits, float(value) if fits else value
    return isinstance(value, hint) and (hint is bool or not isinstance(value, bool)), value


def _convert_one_of(value: Any, hints: tuple[Any, ...]) -> tuple[bool, Any]:
    if type(None) in hints and (value is None or value == "none"):
        return True, None
    tried = (_convert(value, hint) for hint in hints if hint is not type(None))
    return next((found for found in tried if found[0]), (False, value))


def _convert_each(value: Any, hint: Any) -> tuple[bool, Any]:
    if not isinstance(value, (list, tuple)):
        return False, value
    tried = [_convert(entry, hint) for entry in value]
    return all(fits for fits, _ in tried), tuple(converted for _, converted in tried)


def _words(hint: Any) -> str:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_words(each) for each in get_args(hint))
    if origin is Literal:
        return " or ".join(repr(word) for word in get_args(hint))
    if origin is tuple:
        return f"a list, each {_words(get_args(hint)[0])}"
    return WORDS.get(origin or hint, str(hint))


def convert_fields(section: Any) -> None:
    """Convert every field of a dataclass to its annotation."""
    cls: Any = type(section)  # mypy takes no type for hashable
    hints = type_hints(cls)
    for each in fields(section):
        value = convert(each.name, getattr(section, each.name), hints[each.name])
        object.__setattr__(section, each.name, value)


def below_one(name: str, value: float) -> None:
    """Check that a value is 0 or more, and less than 1."""
    if not 0 <= value < 1:
        raise ValueError(f"{name}: expected a number from 0 to below 1, got {value!r}")


def above_zero(section: Any, *names: str) -> None:
    """Check that these fields are above 0, or None."""
    for name in names:
        if getattr(section, name) is not None:
            checks.positive(name, getattr(section, name))


def at_least(section: Any, least: int, *names: str) -> None:
    """Check that these fields are `least` or more, or None."""
    for name in names:
        if getattr(section, name) is not None:
            checks.number(name, getattr(section, name), at_least=least)


def default_options(cls: Callable[..., Any]) -> dict[str, Any]:
    """The options of a class or function and their defaults.

    >>> from kinspace.losses import NRA
    >>> default_options(NRA)
    {'alpha': 4.0, 'eps': 0.0001, 'detach_range': False, 'sharpness': None, 'reduction': 'mean'}
    """
    by_name = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return {
        name: parameter.default
        for name, parameter in inspect.signature(cls).parameters.items()
        if parameter.kind in by_name and name not in SET_BY_THE_RUN
    }


def convert_options(
    cls: Callable[..., Any], name: str, options: Mapping[str, Any]
) -> dict[str, Any]:
    """The options, converted to their types; an unknown one is an error.

    >>> from kinspace.losses import NRA
    >>> convert_options(NRA, "nra", {"alpha": 2})
    {'alpha': 2.0}
    >>> convert_options(NRA, "nra", {"alfa": 2})
    Traceback (most recent call last):
    ValueError: alfa: unknown option of nra 'alfa'; did you mean 'alpha'? choose from: alpha, ...
    """
    hints = type_hints(cls.__init__ if isinstance(cls, type) else cls)  # type: ignore[misc]
    allowed = default_options(cls)
    return {
        require_choice(key, key, allowed, what=f"option of {name}"): convert(key, value, hints[key])
        for key, value in options.items()
    }
