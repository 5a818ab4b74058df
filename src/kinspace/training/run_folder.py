"""The run folder of a training: a new one, or one to go on with; `kinspace.run` opens it."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from kinspace._core.atomic_files import clear_parts
from kinspace._core.text import plural

__all__ = ["FORMAT", "hardware", "new_folder", "same_run"]

FORMAT = 1
# what a run that goes on has to have in common with the one that stopped
_SAME = ("data", "split", "classes", "recipe", "seed")


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


def hardware(device: torch.device) -> dict[str, str]:
    """What the run ran on, for the record."""
    found = {"python": platform.python_version(), "torch": torch.__version__}
    if device.type == "cuda":
        found["device"] = torch.cuda.get_device_name(device)
    else:
        threads = plural(torch.get_num_threads(), "thread")
        found["device"] = f"{platform.processor() or platform.machine()}, {threads}"
    return found
