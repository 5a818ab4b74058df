"""TOML files by name, where the package brings them, or by path: recipes and experiments."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["as_path", "made_from_toml", "shipped_files"]

T = TypeVar("T")


def shipped_files(package: str, folder: str) -> dict[str, Traversable]:
    """The TOML files of a folder in a package, by their names without the ending, in order.

    >>> "nra" in shipped_files("kinspace.recipes", "defaults")
    True
    """
    found = resources.files(package).joinpath(folder).iterdir()
    files = {file.name.removesuffix(".toml"): file for file in found if file.name.endswith(".toml")}
    return dict(sorted(files.items()))


def as_path(name_or_path: str | os.PathLike[str]) -> Path | None:
    """The path that is meant, or None where it is the name of a file that is shipped.

    >>> as_path("nra"), as_path("mine.toml")
    (None, PosixPath('mine.toml'))
    """
    text = os.fspath(name_or_path)
    if not isinstance(name_or_path, str) or text.endswith(".toml") or os.sep in text:
        return Path(text).expanduser()
    return None


def made_from_toml(path: Traversable, where: str, make: Callable[[Mapping[str, Any]], T]) -> T:
    """What `make` makes of the file's table, named after the file if it has no name of its own.

    Errors begin with `where`.

    >>> made_from_toml(Path("no such.toml"), "no such.toml", dict)
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
