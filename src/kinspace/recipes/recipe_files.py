"""Recipes by name or from a TOML file, and their description."""

from __future__ import annotations

import inspect
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, TypeVar

from kinspace.losses import LOSSES
from kinspace.recipes.fields import require_choice
from kinspace.recipes.schema import Recipe
from kinspace.regularizers import REGULARIZERS

__all__ = [
    "default_recipe",
    "describe",
    "describe_as_dict",
    "formulas",
    "list_recipes",
    "load_toml",
    "packaged_toml_files",
    "read_recipe",
    "recipe_names",
    "recipe_of_loss",
    "toml_path",
]

FOLDERS = ("defaults", "papers")
DEFAULT = "nra"
DEFAULT_FROZEN = "proxy_nca"  # better on features of a frozen backbone (benchmarks/equal-budget.md)
T = TypeVar("T")


def recipe_names(folder: str | None = None) -> list[str]:
    """The names of all recipes: the defaults, one per method, then the settings of the papers.

    folder: only "defaults" or only "papers".

    >>> "almn" in recipe_names("defaults"), "almn_cub200" in recipe_names("papers")
    (True, True)
    """
    return [name for each in FOLDERS if folder in (None, each) for name in _files(each)]


def read_recipe(name_or_path: str | os.PathLike[str]) -> Recipe:
    """A recipe by its name ("nra", "almn_cub200") or from a TOML file of your own.

    >>> read_recipe("nra").loss.name
    'nra'
    >>> read_recipe("nrs")
    Traceback (most recent call last):
    ValueError: method: unknown recipe 'nrs'; did you mean 'nra'? ...
    """
    path: Traversable | None = toml_path(name_or_path)
    where = str(name_or_path)
    if path is None:
        files = {name: (each, file) for each in FOLDERS for name, file in _files(each).items()}
        name = require_choice("method", where, files, what="recipe", listed_by="kinspace methods")
        folder, path = files[name]
        where = f"{folder}/{path.name}"
        if folder == "defaults":
            return load_toml(path, where, _with_common)
    return load_toml(path, where, Recipe.from_dict)


def default_recipe() -> Recipe:
    """The recipe of a training without a method: NRA, and Proxy-NCA on frozen features too.

    >>> default_recipe().loss.name, default_recipe().search.frozen
    ('nra', 'proxy_nca')
    """
    recipe = read_recipe(DEFAULT)
    return replace(recipe, search=replace(recipe.search, frozen=DEFAULT_FROZEN))


def recipe_of_loss(name: str, *, about: str) -> Recipe:
    """The recipe of a loss of `LOSSES` that has none: all that the default recipes share.

    >>> recipe = recipe_of_loss("nra", about="")
    >>> recipe.sampler.name, recipe.model.backbone, recipe.optimizer.lr
    ('classes_by_samples', 'auto', 0.001)
    """
    optimizer = {"lr": 1e-3, "head": 1.0, "loss": 10.0}  # as those of the small net
    return _with_common(
        {"name": name, "about": about, "loss": {"name": name}, "optimizer": optimizer}
    )


def _with_common(table: Mapping[str, Any]) -> Recipe:
    """A default recipe over the values that all of them share."""
    files = resources.files("kinspace.recipes")
    common = {
        name: tomllib.loads(files.joinpath(f"{name}.toml").read_text(encoding="utf-8"))
        for name in ("common", "fine_tuning")
    }
    shared = {**common["common"], "fine_tuning": common["fine_tuning"]}
    both = {
        key: {**values, **table.get(key, {})} if isinstance(values, dict) else values
        for key, values in shared.items()
    }
    own = {key: value for key, value in table.items() if not isinstance(both.get(key), dict)}
    return Recipe.from_dict({**both, **own})


def _files(folder: str) -> dict[str, Traversable]:
    return packaged_toml_files("kinspace.recipes", folder)


def formulas(recipe: Recipe) -> dict[str, str]:
    """The module docstrings of the loss and of each regularizer: formula, symbols, paper.

    >>> from kinspace.recipes import read_recipe
    >>> list(formulas(read_recipe("density")))
    ['triplet', 'density']
    """
    modules = {recipe.loss.name: LOSSES[recipe.loss.name]}
    modules |= {part.name: REGULARIZERS[part.name] for part in recipe.regularizers}
    return {name: inspect.getdoc(inspect.getmodule(cls)) or "" for name, cls in modules.items()}


def describe(recipe: Recipe) -> str:
    """The recipe as TOML with every option and default, the formulas in comments above.

    The text is a recipe file: edit it and pass it to `read_recipe`.

    >>> from kinspace.recipes import read_recipe
    >>> print(describe(read_recipe("nra"))[:42])
    # NRA: a loss on nonlinear approximated ra
    """
    texts = "\n\n".join(formulas(recipe).values())
    comment = "\n".join(f"# {line}".rstrip() for line in texts.splitlines())
    return f"{comment}\n\n{recipe.resolved().to_toml()}"


def describe_as_dict(recipe: Recipe) -> dict[str, Any]:
    """The recipe with every option and default, and its formulas, as plain values.

    >>> describe_as_dict(read_recipe("nra"))["loss"]["name"]
    'nra'
    """
    return {**recipe.resolved().to_dict(), "formulas": formulas(recipe)}


def list_recipes(folder: str | None = None) -> list[dict[str, str]]:
    """Name, paper, loss, sampler and a sentence of each recipe in "defaults", "papers" or both.

    >>> list_recipes("defaults")[0]["method"]
    'abe'
    """
    return [
        {
            "method": recipe.name,
            "paper": recipe.source,
            "loss": recipe.loss.name,
            "sampler": recipe.sampler.name,
            "about": recipe.about,
        }
        for recipe in map(read_recipe, recipe_names(folder))
    ]


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
