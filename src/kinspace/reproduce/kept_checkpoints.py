"""Checkpoints on the way of a training, kept for a curve of a measure over the steps.

A training replaces last.safetensors again and again, each time in one piece. While it runs, each
new one is given a second name, RUN/kept/STEP.safetensors: the file itself, not a copy.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from kinspace.reproduce.experiment import Curve
from kinspace.reproduce.jobs import Job
from kinspace.reproduce.run_measures import RunMeasures
from kinspace.reproduce.table_measures import VALIDATION
from kinspace.run import Run

__all__ = ["Keeper"]


class Keeper:
    """Keeps the checkpoints of runs under way; None: of none."""

    def __init__(self, curve: Curve | None) -> None:
        self.curve_wanted = curve
        self._seen: dict[str, int] = {}

    def look(self, job: Job, folder: Path) -> None:
        """Keep the newest checkpoint, if it is new."""
        curve = self.curve_wanted
        if curve is None or job.held_out or curve.measure == VALIDATION:
            return
        try:
            newest = (folder / "last.safetensors").stat().st_ino
        except OSError:
            return
        if self._seen.get(job.name) != newest:
            self._seen[job.name] = newest
            _keep(folder, job.recipe.warm_start.steps)

    def curve(self, job: Job, run: Run, run_measures: RunMeasures) -> list[list[float]]:
        """[step, value] of the run; steps of a warm start count. Kept files are removed."""
        assert self.curve_wanted is not None
        if self.curve_wanted.measure == VALIDATION:
            return _validated(run.metrics)
        self.look(job, run.folder)
        folder = run.folder / "kept"
        points = sorted((int(path.stem), path) for path in folder.glob("*.safetensors"))
        points = [(0, run.folder / "start.safetensors"), *points]
        found = run_measures.curve(
            run.folder, points, self.curve_wanted.measure, classifier=job.row.classifier
        )
        shutil.rmtree(folder, ignore_errors=True)
        return [[step, value] for step, value in found]


def _keep(folder: Path, warm_up: int) -> None:
    """Another name for last.safetensors, with its step."""
    kept = folder / "kept"
    kept.mkdir(exist_ok=True)
    part = kept / ".new"
    part.unlink(missing_ok=True)
    try:
        os.link(folder / "last.safetensors", part)
        step = _step(part, warm_up)
    except (OSError, SafetensorError, KeyError, ValueError):
        part.unlink(missing_ok=True)
        return
    part.replace(kept / f"{step}.safetensors")


def _step(path: Path, warm_up: int) -> int:
    with safe_open(path, "pt") as file:  # type: ignore[no-untyped-call]
        state = json.loads((file.metadata() or {})["kinspace"])
    return int(state["step"]) + (warm_up if state["phase"] else 0)


def _validated(rows: list[dict[str, Any]]) -> list[list[float]]:
    found: Mapping[int, float] = {row["step"]: row["recall@1"] for row in rows if "recall@1" in row}
    return [[step, found[step]] for step in sorted(found)]
