"""Read and write TOML files: recipes and experiments, from the package or by path."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["load_toml", "packaged_toml_files", "to_toml", "toml_path"]

T = TypeVar("T")
BARE = re.compile(r"[A-Za-z0-9_-]+")


def packaged_toml_files(package: str, folder: str) -> dict[str, Traversable]:
    """The TOML files of a folder in a package, sorted, by their names without the ending.

    >>> "nra" in packaged_toml_files("kinspace.recipes", "defaults")
    True
    """
    found = resources.files(package).joinpath(folder).iterdir()
    files = {file.name.removesuffix(".toml"): file for file in found if file.name.endswith(".toml")}
    return dict(sorted(files.items()))


def toml_path(name_or_path: str | os.PathLike[str]) -> Path | None:
    """The path of a file, or None for the name of a file of the package.

    >>> toml_path("nra"), toml_path("mine.toml")
    (None, PosixPath('mine.toml'))
    """
    text = os.fspath(name_or_path)
    if not isinstance(name_or_path, str) or text.endswith(".toml") or os.sep in text:
        return Path(text).expanduser()
    return None


def load_toml(path: Traversable, where: str, make: Callable[[Mapping[str, Any]], T]) -> T:
    """The result of `make` on the file's table, whose "name" is by default that of the file.

    Errors start with `where`.

    >>> load_toml(Path("no such.toml"), "no such.toml", dict)
    Traceback (most recent call last):
    ValueError: no such.toml: cannot be read: No such file or directory
    """
    try:
        table: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        return make({"name": path.name.removesuffix(".toml"), **table})
    except OSError as error:
        raise ValueError(f"{where}: cannot be read: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{where}: expected TOML: {error}") from None
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def to_toml(table: Mapping[str, Any]) -> str:
    """The table as TOML: values first, then tables, without empty ones. None is written "none".

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
    """The text of a table's own values, then one text for each table in it."""
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
    # JSON's escapes are TOML's, except for the one control character that JSON leaves as it is
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
