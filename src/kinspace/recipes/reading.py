"""Recipes by name or from a file."""

from __future__ import annotations

import os
import tomllib
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from kinspace.recipes.recipe import Recipe
from kinspace.recipes.typed import known

__all__ = ["read_recipe", "recipe_names"]

FOLDERS = ("defaults", "papers")


def recipe_names(folder: str | None = None) -> list[str]:
    """The names that `read_recipe` knows: first a default a method, then the papers' settings.

    folder: "defaults" or "papers" for these alone.

    >>> recipe_names("defaults")[:3]
    ['almn', 'angular', 'center']
    """
    return [name for each in FOLDERS if folder in (None, each) for name in _files(each)]


def read_recipe(name_or_path: str | os.PathLike[str]) -> Recipe:
    """A recipe by its name ("nra", "almn_cub200") or from a TOML file of your own.

    >>> read_recipe("nra").loss.name
    'nra'
    >>> read_recipe("nrs")
    Traceback (most recent call last):
    ValueError: method: unknown recipe 'nrs'; did you mean 'nra'? choose from: ...
    """
    text = os.fspath(name_or_path)
    if not isinstance(name_or_path, str) or text.endswith(".toml") or os.sep in text:
        path: Traversable = Path(text).expanduser()
        where = text
    else:
        files = {name: (each, file) for each in FOLDERS for name, file in _files(each).items()}
        folder, path = files[known("method", text, files, what="recipe")]
        where = f"{folder}/{path.name}"
    try:
        table: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        return Recipe.from_dict({"name": path.name.removesuffix(".toml"), **table})
    except OSError as error:
        raise ValueError(f"{where}: cannot be read: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{where}: expected TOML: {error}") from None
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _files(folder: str) -> dict[str, Traversable]:
    found = resources.files("kinspace.recipes").joinpath(folder).iterdir()
    files = {file.name.removesuffix(".toml"): file for file in found if file.name.endswith(".toml")}
    return dict(sorted(files.items()))
