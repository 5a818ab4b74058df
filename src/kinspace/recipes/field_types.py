"""Strict types of what a user wrote: a whole number passes for a number, nothing else for another.

TOML has no word for nothing: where None is allowed it is written "none".
"""

from __future__ import annotations

import math
import types
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from kinspace._core import checks

__all__ = ["fitted", "hints_of", "known"]

WORDS: dict[Any, str] = {
    int: "a whole number",
    float: "a finite number",
    str: "a text",
    bool: "true or false",
    type(None): "'none'",
    Mapping: "a table",
    tuple: "a list",
}


def known(key: str, word: str, allowed: Iterable[str], *, what: str) -> str:
    """One of the allowed words.

    >>> known("loss.name", "triplets", ["nra", "triplet"], what="loss")
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
def hints_of(typed: Any) -> dict[str, Any]:
    """The type hints of a class or function, by name.

    >>> hints_of(hints_of.__wrapped__)["return"]
    dict[str, typing.Any]
    """
    return get_type_hints(typed)


def fitted(key: str, value: Any, hint: Any) -> Any:
    """The value as the type hint has it: 3 is 3.0 where a float is asked for, a list is a tuple.

    >>> fitted("optimizer.lr", 1, float), fitted("model.dim", "none", int | None)
    (1.0, None)
    >>> fitted("optimizer.lr", "3", float)
    Traceback (most recent call last):
    ValueError: optimizer.lr: expected a finite number, got '3'
    """
    fits, made = _fit(value, hint)
    if not fits:
        raise ValueError(f"{key}: expected {_words(hint)}, got {value!r}")
    return made


def _fit(value: Any, hint: Any) -> tuple[bool, Any]:
    origin = get_origin(hint)
    if hint is Any:
        return True, value
    if origin in (Union, types.UnionType):
        return _fit_one_of(value, get_args(hint))
    if origin is Literal:
        return value in get_args(hint), value
    if origin is tuple:
        return _fit_each(value, get_args(hint)[0])
    if origin is Mapping:
        words = isinstance(value, Mapping) and all(isinstance(key, str) for key in value)
        return words, dict(value) if words else value
    if hint is float:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        fits = number and math.isfinite(value)
        return fits, float(value) if fits else value
    return isinstance(value, hint) and (hint is bool or not isinstance(value, bool)), value


def _fit_one_of(value: Any, hints: tuple[Any, ...]) -> tuple[bool, Any]:
    if type(None) in hints and (value is None or value == "none"):
        return True, None
    tried = (_fit(value, hint) for hint in hints if hint is not type(None))
    return next((found for found in tried if found[0]), (False, value))


def _fit_each(value: Any, hint: Any) -> tuple[bool, Any]:
    if not isinstance(value, (list, tuple)):
        return False, value
    tried = [_fit(entry, hint) for entry in value]
    return all(fits for fits, _ in tried), tuple(made for _, made in tried)


def _words(hint: Any) -> str:
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        return " or ".join(_words(each) for each in get_args(hint))
    if origin is Literal:
        return " or ".join(repr(word) for word in get_args(hint))
    if origin is tuple:
        return f"a list, each {_words(get_args(hint)[0])}"
    return WORDS.get(origin or hint, str(hint))
