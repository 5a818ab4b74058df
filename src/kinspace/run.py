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

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kinspace._core.json_files import read_json
from kinspace.training.log import read_metrics

__all__ = ["Run", "open_run"]


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
