"""The progress of an experiment: bars in a terminal, lines in a log."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from kinspace.reproduce.jobs import Job
from kinspace.reproduce.table_measures import VALIDATION, title

__all__ = ["ExperimentProgress", "ProgressBars", "ProgressLines", "progress_display"]

EVERY = 30.0  # seconds between two lines about running jobs


class ExperimentProgress(Protocol):
    """Receives the progress of the runs of an experiment, from several threads."""

    def start(self, total: int, finished: int) -> None:
        """Called once, with the number of runs and of those that are finished already."""

    def update(self, job: Job, folder: Path) -> None:
        """Called several times a second for each running job."""

    def finish(self, job: Job, record: Mapping[str, Any]) -> None:
        """Called when a run is recorded."""

    def fail(self, job: Job, reason: str) -> None:
        """Called when a run has failed."""

    def close(self) -> None:
        """Called at the end."""


def progress_display() -> ExperimentProgress:
    """Bars where standard error is a terminal, lines elsewhere."""
    return ProgressBars() if sys.stderr.isatty() else ProgressLines()


class ProgressLines:
    """A line when a run ends, and one about the running jobs every 30 seconds."""

    def __init__(self) -> None:
        self._total = self._finished = 0
        self._steps: dict[str, str] = {}
        self._last = time.monotonic()
        self._lock = threading.Lock()

    def start(self, total: int, finished: int) -> None:
        """Print the number of runs."""
        self._total, self._finished = total, finished
        self._print(f"{total} runs, {finished} of them finished already")

    def update(self, job: Job, folder: Path) -> None:
        """Print the steps of all running jobs, if it is time."""
        with self._lock:
            self._steps[job.name] = f"{_steps_done(job, folder)}/{job.steps}"
            if time.monotonic() - self._last > EVERY:
                self._last = time.monotonic()
                self._print("running: " + ", ".join(f"{n} {s}" for n, s in self._steps.items()))

    def finish(self, job: Job, record: Mapping[str, Any]) -> None:
        """Print the measures of a run."""
        with self._lock:
            self._steps.pop(job.name, None)
            self._finished += 1
        self._print(f"[{self._finished}/{self._total}] {job.name}: {_measures_text(record)}")

    def fail(self, job: Job, reason: str) -> None:
        """Print why a run failed."""
        with self._lock:
            self._steps.pop(job.name, None)
        self._print(f"{job.name}: failed: {reason}")

    def close(self) -> None:
        """Nothing to close."""

    def _print(self, text: str) -> None:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


class ProgressBars:
    """A bar for all runs, and one for each running job."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn())
        self._bars = Progress(*columns, console=Console(stderr=True), transient=True)
        self._tasks: dict[str, Any] = {}
        self._all = self._bars.add_task("runs", total=None)
        self._updated: dict[str, float] = {}

    def start(self, total: int, finished: int) -> None:
        """Show the bar of all runs."""
        self._bars.update(self._all, total=total, completed=finished)
        self._bars.start()

    def update(self, job: Job, folder: Path) -> None:
        """Update the bar of a job."""
        if time.monotonic() - self._updated.get(job.name, -1.0) < 0.5:
            return
        self._updated[job.name] = time.monotonic()
        if job.name not in self._tasks:
            self._tasks[job.name] = self._bars.add_task(job.name, total=job.steps)
        self._bars.update(self._tasks[job.name], completed=_steps_done(job, folder))

    def finish(self, job: Job, record: Mapping[str, Any]) -> None:
        """Print the measures of a run."""
        self._remove(job)
        self._bars.advance(self._all)
        self._print(f"{job.name}: {_measures_text(record)}")

    def fail(self, job: Job, reason: str) -> None:
        """Print why a run failed."""
        self._remove(job)
        self._print(f"{job.name}: failed: {reason}")

    def close(self) -> None:
        """Remove the bars."""
        self._bars.stop()

    def _remove(self, job: Job) -> None:
        task = self._tasks.pop(job.name, None)
        if task is not None:
            self._bars.remove_task(task)

    def _print(self, text: str) -> None:
        self._bars.console.print(text, markup=False, highlight=False, soft_wrap=True)


def _steps_done(job: Job, folder: Path) -> int:
    """Steps by the last row of the run's metrics, with those of a warm start; 0 without any."""
    try:
        with (folder / "metrics.jsonl").open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - 4096))
            rows = file.read().splitlines()
        last = json.loads(rows[-1])
        return int(last["step"]) + (job.recipe.warm_start.steps if last["phase"] else 0)
    except (OSError, ValueError, IndexError, KeyError):
        return 0


def _measures_text(record: Mapping[str, Any]) -> str:
    """The numbers of a record in a line.

    >>> validation = {"recall@1": 0.25}
    >>> _measures_text({"test": {"recall@1": 0.5}, "validation": validation, "seconds": 8.1})
    'Recall@1 50.0, validation Recall@1 25.0, 8 s'
    """
    words = [f"{title(name)} {100 * value:.1f}" for name, value in list(record["test"].items())[:6]]
    if record.get("validation"):
        words.append(f"{title(VALIDATION)} {100 * record['validation']['recall@1']:.1f}")
    return ", ".join([*words, f"{record['seconds']:.0f} s"])
