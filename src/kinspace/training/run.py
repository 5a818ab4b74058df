"""A run folder: what a training leaves, and all that is needed to go on or to use the model.

run.json           what was run: data, split, recipe, settings, classes, versions
recipe.toml        the recipe, complete
metrics.jsonl      a row of numbers every few steps
start.safetensors  the weights before the first step
last.safetensors   everything the next step needs
model.safetensors  the chosen weights: best on the validation classes, else the last
results.json       the verdict on the test part, beside the untrained backbone and raw pixels
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from kinspace.data.check_report import counted
from kinspace.training.checkpoint import clear_parts, write_atomically
from kinspace.training.log import read_metrics

__all__ = ["Run", "hardware", "new_folder", "open_run", "read_json", "same_run", "write_json"]

FORMAT = 1
# what a run that goes on has to have in common with the one that stopped
_SAME = ("data", "split", "classes", "recipe", "seed")


@dataclass(frozen=True)
class Run:
    """A run folder. `run.results` is the verdict, `run.metrics` the way there."""

    folder: Path

    @property
    def about(self) -> dict[str, Any]:
        """run.json."""
        return read_json(self.folder / "run.json")

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The rows of metrics.jsonl."""
        return read_metrics(self.folder / "metrics.jsonl")

    @property
    def results(self) -> dict[str, Any]:
        """results.json; empty before the training has ended."""
        path = self.folder / "results.json"
        return read_json(path) if path.exists() else {}

    @property
    def finished(self) -> bool:
        """Whether the training has come to its end."""
        return (self.folder / "results.json").exists()


def open_run(folder: str | Path) -> Run:
    """The run in a folder; a ValueError if there is none."""
    folder = Path(folder)
    if not folder.is_dir():
        raise ValueError(f"{folder}: expected a run folder, got no such folder")
    if not (folder / "run.json").exists():
        raise ValueError(f"{folder}: expected a run folder, got one without run.json")
    return Run(folder)


def new_folder(out: str | Path | None, name: str) -> Path:
    """The folder for a new run: the one named, if it is empty or new, else the next free number.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as parent:
    ...     new_folder(f"{parent}/mine", "moths-nra").name
    'mine'
    """
    if out is None:
        number = 1
        while (folder := Path("runs") / f"{name}-{number}").exists():
            number += 1
    else:
        folder = Path(out)
        if (folder / "run.json").exists():
            raise ValueError(
                f"{folder}: there is a run in it already; go on with it (--resume {folder}) or "
                "name another folder"
            )
        if folder.is_dir():
            clear_parts(folder)
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ValueError(f"{folder}: expected a new or empty folder, got one with other files")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{folder}: cannot be made: {error.strerror}") from None
    return folder


def same_run(found: Mapping[str, Any], asked: Mapping[str, Any], folder: Path) -> None:
    """Refuse to go on with another recipe, data or seed than the run began with."""
    for key in _SAME:
        there, here = _plain(found.get(key)), _plain(asked.get(key))
        if there != here:
            raise ValueError(
                f"{folder}: is a run of another {key}: {_difference(key, there, here)}; go on with "
                "what it began with, or start a new run in another folder"
            )


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value))  # tuples and lists are one


def _difference(key: str, there: Any, here: Any) -> str:
    if isinstance(there, dict) and isinstance(here, dict):
        for name in sorted({*there, *here}):
            if there.get(name) != here.get(name):
                return _difference(f"{key}.{name}", there.get(name), here.get(name))
    return f"{key} is {there!r} there, {here!r} here"


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write JSON in one piece."""
    text = json.dumps(value, indent=1, ensure_ascii=False) + "\n"
    write_atomically(path, lambda part: part.write_text(text, encoding="utf-8"))


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object; a ValueError if the file is none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: cannot be read: {error}") from None
    assert isinstance(value, dict)
    return value


def hardware(device: torch.device) -> dict[str, str]:
    """What the run ran on, for the record."""
    found = {"python": platform.python_version(), "torch": torch.__version__}
    if device.type == "cuda":
        found["device"] = torch.cuda.get_device_name(device)
    else:
        threads = counted(torch.get_num_threads(), "thread")
        found["device"] = f"{platform.processor() or platform.machine()}, {threads}"
    return found
