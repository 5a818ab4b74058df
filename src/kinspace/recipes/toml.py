"""Tables as TOML text; `tomllib` only reads."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

__all__ = ["to_toml"]

BARE = re.compile(r"[A-Za-z0-9_-]+")


def to_toml(table: Mapping[str, Any]) -> str:
    """The table as TOML: values first, then tables. None is written "none", what is empty is not.

    >>> print(to_toml({"name": "a", "loss": {"beta": 3.0, "x": None}, "terms": [{"eta": 0.5}]}))
    name = "a"
    <BLANKLINE>
    [loss]
    beta = 3.0
    x = "none"
    <BLANKLINE>
    [[terms]]
    eta = 0.5
    <BLANKLINE>
    """
    return "\n".join(_blocks(table, header="", path=""))


def _blocks(table: Mapping[str, Any], *, header: str, path: str) -> list[str]:
    """The values of a table below its header, and the tables in it, a text each."""
    own, below = header, []
    for key, value in table.items():
        full = f"{path}.{_key(key)}" if path else _key(key)
        if isinstance(value, Mapping):
            below += _blocks(value, header=f"[{full}]\n", path=full) if value else []
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            for entry in value:
                below += _blocks(entry, header=f"[[{full}]]\n", path=full)
        else:
            own += f"{_key(key)} = {_value(value)}\n"
    return [own, *below] if own != header or header.startswith("[[") else below


def _key(key: str) -> str:
    return key if BARE.fullmatch(key) else _text(key)


def _text(text: str) -> str:
    # JSON's escapes are TOML's, but for the one control character that JSON lets stand
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any) -> str:
    if value is None:
        return '"none"'
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(entry) for entry in value) + "]"
    if isinstance(value, (int, float)):
        return repr(value)
    raise ValueError(f"expected a text, a number, true, false or a list of them, got {value!r}")
