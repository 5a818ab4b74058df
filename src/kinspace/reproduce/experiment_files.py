"""Experiments by name or from a file."""

from __future__ import annotations

import os
from importlib.resources.abc import Traversable

from kinspace.recipes.fields import require_choice
from kinspace.recipes.toml_files import load_toml, packaged_toml_files, toml_path
from kinspace.reproduce.experiment import Experiment

__all__ = ["experiment_names", "read_experiment"]


def experiment_names() -> list[str]:
    """The names that `read_experiment` knows.

    >>> "almn" in experiment_names()
    True
    """
    return list(_files())


def read_experiment(name_or_path: str | os.PathLike[str]) -> Experiment:
    """An experiment by its name, or from a TOML file of your own.

    >>> read_experiment("almn").rows[-1].title
    'ALMN, β = 3'
    >>> read_experiment("almm")
    Traceback (most recent call last):
    ValueError: NAME: unknown experiment 'almm'; did you mean 'almn'? choose from: almn, ...
    """
    path: Traversable | None = toml_path(name_or_path)
    where = str(name_or_path)
    if path is None:
        files = _files()
        path = files[require_choice("NAME", where, files, what="experiment")]
        where = f"experiments/{path.name}"
    return load_toml(path, where, Experiment.from_dict)


def _files() -> dict[str, Traversable]:
    return packaged_toml_files("kinspace.reproduce", "experiments")
