"""Recipes by name or from a file."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from kinspace.recipes.field_types import known
from kinspace.recipes.recipe import Recipe
from kinspace.recipes.shipped import as_path, made_from_toml, shipped_files

__all__ = ["read_recipe", "recipe_names"]

FOLDERS = ("defaults", "papers")


def recipe_names(folder: str | None = None) -> list[str]:
    """The names that `read_recipe` knows: first a default a method, then the papers' settings.

    folder: "defaults" or "papers" for these alone.

    >>> recipe_names("defaults")[:3]
    ['abe', 'almn', 'angular']
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
    path: Traversable | None = as_path(name_or_path)
    where = str(name_or_path)
    if path is None:
        files = {name: (each, file) for each in FOLDERS for name, file in _files(each).items()}
        folder, path = files[known("method", where, files, what="recipe")]
        where = f"{folder}/{path.name}"
        if folder == "defaults":
            return made_from_toml(path, where, _fine_tuned)
    return made_from_toml(path, where, Recipe.from_dict)


def _fine_tuned(table: Mapping[str, Any]) -> Recipe:
    """A default recipe with what all of them have for backbones that come with weights."""
    common = resources.files("kinspace.recipes").joinpath("fine_tuning.toml")
    values = tomllib.loads(common.read_text(encoding="utf-8"))
    return Recipe.from_dict({**table, "fine_tuning": {**values, **table.get("fine_tuning", {})}})


def _files(folder: str) -> dict[str, Traversable]:
    return shipped_files("kinspace.recipes", folder)
