"""What is shown while the runs of an experiment are under way."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kinspace.reproduce.jobs import Job
from kinspace.reproduce.measures import title

__all__ = ["Bars", "LogLines", "progress_for"]

EVERY = 30.0  # seconds between two lines about the runs under way


def progress_for() -> Bars | LogLines:
    """Bars in a terminal, lines in a log."""
    return Bars() if sys.stderr.isatty() else LogLines()


class LogLines:
    """A line when a run ends, and now and then one about those under way."""

    def __init__(self) -> None:
        self._runs = self._there = 0
        self._steps: dict[str, str] = {}
        self._last = time.monotonic()
        self._lock = threading.Lock()

    def begin(self, runs: int, there: int) -> None:
        """How many there are to do."""
        self._runs, self._there = runs, there
        self._say(f"{runs} runs, {there} of them there already")

    def look(self, job: Job, folder: Path) -> None:
        """Tell of all runs under way, if it is time."""
        with self._lock:
            self._steps[job.name] = f"{steps_done(job, folder)}/{job.steps}"
            if time.monotonic() - self._last > EVERY:
                self._last = time.monotonic()
                self._say("under way: " + ", ".join(f"{n} {s}" for n, s in self._steps.items()))

    def done(self, job: Job, record: Mapping[str, Any]) -> None:
        """One more."""
        with self._lock:
            self._steps.pop(job.name, None)
            self._there += 1
        self._say(f"[{self._there}/{self._runs}] {job.name}: {described(record)}")

    def failed(self, job: Job, why: str) -> None:
        """One less."""
        with self._lock:
            self._steps.pop(job.name, None)
        self._say(f"{job.name}: failed: {why}")

    def close(self) -> None:
        """Nothing to close."""

    def _say(self, text: str) -> None:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


class Bars:
    """A bar for all runs, and one for each under way."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn())
        self._bars = Progress(*columns, console=Console(stderr=True), transient=True)
        self._tasks: dict[str, Any] = {}
        self._all = self._bars.add_task("runs", total=None)
        self._looked: dict[str, float] = {}

    def begin(self, runs: int, there: int) -> None:
        """How many there are to do."""
        self._bars.update(self._all, total=runs, completed=there)
        self._bars.start()

    def look(self, job: Job, folder: Path) -> None:
        """Renew the bar of a run."""
        if time.monotonic() - self._looked.get(job.name, -1.0) < 0.5:
            return
        self._looked[job.name] = time.monotonic()
        if job.name not in self._tasks:
            self._tasks[job.name] = self._bars.add_task(job.name, total=job.steps)
        self._bars.update(self._tasks[job.name], completed=steps_done(job, folder))

    def done(self, job: Job, record: Mapping[str, Any]) -> None:
        """One more."""
        self._remove(job)
        self._bars.advance(self._all)
        self._say(f"{job.name}: {described(record)}")

    def failed(self, job: Job, why: str) -> None:
        """One less."""
        self._remove(job)
        self._say(f"{job.name}: failed: {why}")

    def close(self) -> None:
        """Remove the bars."""
        self._bars.stop()

    def _remove(self, job: Job) -> None:
        task = self._tasks.pop(job.name, None)
        if task is not None:
            self._bars.remove_task(task)

    def _say(self, text: str) -> None:
        self._bars.console.print(text, markup=False, highlight=False, soft_wrap=True)


def steps_done(job: Job, folder: Path) -> int:
    """By the last row of the run's metrics, with those of a warm start; 0: none yet."""
    try:
        with (folder / "metrics.jsonl").open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - 4096))
            rows = file.read().splitlines()
        last = json.loads(rows[-1])
        return int(last["step"]) + (job.recipe.warm_start.steps if last["phase"] else 0)
    except (OSError, ValueError, IndexError, KeyError):
        return 0


def described(record: Mapping[str, Any]) -> str:
    """The numbers of a record in a line.

    >>> described({"test": {"recall@1": 0.5}, "validation": {"recall@1": 0.25}, "seconds": 8.1})
    'R@1 50.0, validation R@1 25.0, 8 s'
    """
    words = [f"{title(name)} {100 * value:.1f}" for name, value in list(record["test"].items())[:6]]
    if record.get("validation"):
        words.append(f"validation R@1 {100 * record['validation']['recall@1']:.1f}")
    return ", ".join([*words, f"{record['seconds']:.0f} s"])
