"""The run folder of a training: a new one, or one to resume; `kinspace.run` opens it."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kinspace._core.atomic_files import clear_parts, write_json
from kinspace._core.text import plural
from kinspace.distributed import broadcast_from_main, is_main_process
from kinspace.recipes import Recipe
from kinspace.training.checkpoint import read_checkpoint

__all__ = ["FORMAT", "create_run", "hardware", "new_folder", "require_same", "resume_run"]

FORMAT = 1  # of run.json and the files beside it
# what a resumed run has to share with the run as it was started
_SAME = ("data", "split", "classes", "recipe", "seed")


def new_folder(out: str | Path | None, name: str) -> Path:
    """Make the folder of a new run: `out`, if it is empty or new; None: runs/NAME-NUMBER.

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
                f"{folder}: has a run already; resume it (--resume {folder}) or name another folder"
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


def create_run(out: str | Path | None, name: str, about: Mapping[str, Any], recipe: Recipe) -> Path:
    """Make the folder of a new run, with run.json and recipe.toml; the same on every process."""
    folder = Path(broadcast_from_main(str(new_folder(out, name)) if is_main_process() else ""))
    if is_main_process():
        write_json(folder / "run.json", about)
        (folder / "recipe.toml").write_text(recipe.to_toml(), encoding="utf-8")
    return folder


def resume_run(
    out: str | Path | None, about: Mapping[str, Any]
) -> tuple[Path, tuple[dict[str, Tensor], dict[str, Any]] | None]:
    """The folder of a run to resume, and its last checkpoint; None: it was stopped before one."""
    from kinspace.run import open_run

    if out is None:
        raise ValueError("resume: expected the run folder in `out`")
    run = open_run(out)
    require_same(run.about, about, run.folder)
    if is_main_process():
        clear_parts(run.folder)
    last = run.folder / "last.safetensors"
    return run.folder, read_checkpoint(last) if last.exists() else None


def require_same(found: Mapping[str, Any], given: Mapping[str, Any], folder: Path) -> None:
    """A ValueError if a run was started with another recipe, data or seed."""
    for key in _SAME:
        there, here = _plain(found.get(key)), _plain(given.get(key))
        if there != here:
            raise ValueError(
                f"{folder}: is a run of another {key}: {_difference(key, there, here)}; resume it "
                "with what it was started with, or start a new run in another folder"
            )


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value))  # tuples become lists


def _difference(key: str, there: Any, here: Any) -> str:
    if isinstance(there, dict) and isinstance(here, dict):
        for name in sorted({*there, *here}):
            if there.get(name) != here.get(name):
                return _difference(f"{key}.{name}", there.get(name), here.get(name))
    return f"{key} is {there!r} there, {here!r} here"


def hardware(device: torch.device) -> dict[str, str]:
    """The device and the versions of Python and PyTorch, for run.json."""
    found = {"python": platform.python_version(), "torch": torch.__version__}
    if device.type == "cuda":
        found["device"] = torch.cuda.get_device_name(device)
    else:
        threads = plural(torch.get_num_threads(), "thread")
        found["device"] = f"{platform.processor() or platform.machine()}, {threads}"
    return found
