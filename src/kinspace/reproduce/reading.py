"""Experiments by name or from a file."""

from __future__ import annotations

import os
import tomllib
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from kinspace.recipes.typed import known
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
    text = os.fspath(name_or_path)
    if not isinstance(name_or_path, str) or text.endswith(".toml") or os.sep in text:
        path: Traversable = Path(text).expanduser()
        where = text
    else:
        files = _files()
        path = files[known("NAME", text, files, what="experiment")]
        where = f"experiments/{path.name}"
    try:
        table: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        return Experiment.from_dict({"name": path.name.removesuffix(".toml"), **table})
    except OSError as error:
        raise ValueError(f"{where}: cannot be read: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{where}: expected TOML: {error}") from None
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _files() -> dict[str, Traversable]:
    found = resources.files("kinspace.reproduce").joinpath("experiments").iterdir()
    files = {file.name.removesuffix(".toml"): file for file in found if file.name.endswith(".toml")}
    return dict(sorted(files.items()))
