"""The log of a training: rows of metrics in metrics.jsonl, progress on stderr.

Losses stay on the device until a row is due, so that no step waits for the one before it. Then the
losses of all steps since the last row are read at once: the row has their mean. The first step
whose loss is not finite ends the run.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TextIO

import torch
from torch import Tensor

from kinspace._core.atomic_files import write_atomically
from kinspace.distributed import is_main_process
from kinspace.training.run_folder import read_metrics

__all__ = [
    "LossWindow",
    "MetricsFile",
    "NoProgress",
    "NotFinite",
    "OneBar",
    "PlainProgress",
    "Progress",
    "ProgressBar",
    "make_progress",
]

RECENT = 30  # rows that the speed is taken from

Row = Mapping[str, Any]


class NotFinite(RuntimeError):
    """The loss of a step, or the weights after it, are NaN or infinite.

    step: its number, from 1. indices: the samples of its batch.
    """

    def __init__(self, step: int, indices: list[int], *, what: str = "loss of") -> None:
        self.step = step
        self.indices = indices
        super().__init__(f"not finite: the {what} step {step}")


class LossWindow:
    """The losses of the steps since the last row, still on the device.

    >>> window = LossWindow()
    >>> window.add(1, {"loss": torch.tensor(2.0)}, torch.tensor([0]))
    >>> window.add(2, {"loss": torch.tensor(4.0)}, torch.tensor([1]))
    >>> window.read()
    {'loss': 3.0}
    """

    def __init__(self) -> None:
        self._steps: list[tuple[int, dict[str, Tensor], Tensor]] = []

    def add(self, step: int, parts: dict[str, Tensor], indices: Tensor) -> None:
        """Add the loss of a step by its parts, and the samples of its batch."""
        self._steps.append((step, parts, indices))

    def state_dict(self) -> list[list[Any]]:
        """The losses as numbers, for a checkpoint between two rows."""
        return [
            [step, {name: float(value) for name, value in parts.items()}, indices.tolist()]
            for step, parts, indices in self._steps
        ]

    def load_state_dict(self, state: list[list[Any]]) -> None:
        """Go on with the losses of a `state_dict`."""
        self._steps = [
            (step, {name: torch.tensor(value) for name, value in parts.items()}, torch.tensor(rows))
            for step, parts, rows in state
        ]

    def require_finite(self) -> None:
        """Raise `NotFinite` for the first step whose loss is not; the window stays as it is."""
        self._table()

    def read(self) -> dict[str, float]:
        """The mean of each part, in float64; empties the window."""
        table = self._table()
        names = list(self._steps[0][1]) if self._steps else []
        self._steps.clear()
        return dict(zip(names, table.mean(0).tolist(), strict=True)) if names else {}

    def _table(self) -> Tensor:
        """Steps by parts, on the CPU. Waits for the device."""
        if not self._steps:
            return torch.empty(0, 0)
        names = list(self._steps[0][1])
        rows = [torch.stack([parts[n].float() for n in names]) for _, parts, _ in self._steps]
        device = rows[-1].device  # those of a checkpoint are on the CPU
        table = torch.stack([row.to(device) for row in rows]).double().cpu()  # (steps, parts)
        bad = (~table.isfinite()).any(1).nonzero()
        if len(bad):
            step, _, indices = self._steps[int(bad[0])]
            raise NotFinite(step, indices.tolist())
        return table


class MetricsFile:
    """metrics.jsonl: a JSON object a line, flushed line by line.

    after: the (phase, step) to resume from. Later rows are of steps that are done again, and are
    removed. None: a new file.
    """

    def __init__(self, path: Path, *, after: tuple[int, int] | None = None) -> None:
        rows = [] if after is None else read_metrics(path)
        kept = [row for row in rows if after and (row["phase"], row["step"]) <= after]
        text = "".join(json.dumps(row) + "\n" for row in kept)
        write_atomically(path, lambda part: part.write_text(text))
        self._file: TextIO = path.open("a")

    def write(self, row: Row) -> None:
        """Add a line."""
        self._file.write(json.dumps(row) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Progress(Protocol):
    """Shows how far a training is."""

    def start(self, steps: int) -> None:
        """Begin a phase of `steps` steps."""

    def update(self, row: Row) -> None:
        """Show a row of metrics."""

    def status(self, text: str, done: int, total: int) -> None:
        """Show work that is not made of steps."""

    def message(self, text: str) -> None:
        """Show a sentence."""

    def close(self) -> None:
        """The training has ended."""


def make_progress(*, quiet: bool = False) -> Progress:
    """A bar in a terminal, lines in a log file; nothing if `quiet` or not the main process.

    >>> type(make_progress(quiet=True)).__name__
    'NoProgress'
    """
    if quiet or not is_main_process():
        return NoProgress()
    return ProgressBar() if sys.stderr.isatty() else PlainProgress()


class NoProgress:
    """Shows nothing."""

    def start(self, steps: int) -> None:
        """Nothing."""

    def update(self, row: Row) -> None:
        """Nothing."""

    def status(self, text: str, done: int, total: int) -> None:
        """Nothing."""

    def message(self, text: str) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class PlainProgress:
    """Plain lines on stderr: a row at most every `every` seconds, and each with a validation."""

    def __init__(self, *, every: float = 5.0) -> None:
        self._steps = 0
        self._every = every
        self._last = -math.inf

    def start(self, steps: int) -> None:
        """Begin a phase of `steps` steps."""
        self._steps, self._last = steps, -math.inf

    def update(self, row: Row) -> None:
        """Print the row, if it is due."""
        now = time.monotonic()
        if now - self._last < self._every and "recall@1" not in row and row["step"] < self._steps:
            return
        self._last = now
        self.message(format_row(row, self._steps))

    def status(self, text: str, done: int, total: int) -> None:
        """Print how far the work is, if it is due."""
        now = time.monotonic()
        if now - self._last >= self._every and done < total:
            self._last = now
            self.message(f"{text}: {done:,} of {total:,}")

    def message(self, text: str) -> None:
        """Print the sentence."""
        sys.stderr.write(f"{text}\n")
        sys.stderr.flush()

    def close(self) -> None:
        """Nothing to close."""


class ProgressBar:
    """A bar with the newest row, for a terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (BarColumn(bar_width=20), TextColumn("{task.description}"))
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task("", total=None)
        self._steps = 0
        self._bar.start()

    def start(self, steps: int) -> None:
        """Begin a phase of `steps` steps."""
        self._steps = steps
        self._bar.reset(self._task, total=steps, description="")

    def update(self, row: Row) -> None:
        """Show the row beside the bar."""
        text = format_row(row, self._steps)
        self._bar.update(self._task, completed=row["step"], description=text)

    def status(self, text: str, done: int, total: int) -> None:
        """Show how far the work is beside the bar."""
        self._bar.update(self._task, description=f"{text}: {done:,} of {total:,}")

    def message(self, text: str) -> None:
        """Print the sentence above the bar."""
        self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Remove the bar."""
        self._bar.stop()


class OneBar:
    """One bar over all steps of a run: of a search, of a warm start and of the training.

    The time left counts all steps that are planned, at the speed of the last rows, with their
    validations. A search plans the most steps that it may take, so that less may be left.
    """

    def __init__(self, shown: Progress) -> None:
        self.done = 0  # steps
        self._shown = shown
        self._planned = 0
        self._before = 0  # steps before this phase
        self._recent: deque[tuple[float, int]] = deque(maxlen=RECENT)

    def plan(self, steps: int) -> None:
        """Plan this many steps more."""
        self._planned = self.done + steps
        self._shown.start(self._planned)

    def start(self, steps: int) -> None:
        """Begin a phase of `steps` steps."""
        self._before = self.done
        self._recent.clear()
        if self._before + steps > self._planned:
            self.plan(steps)

    def update(self, row: Row) -> None:
        """Show the row as one of the whole."""
        self.done = self._before + row["step"]
        self._recent.append((time.monotonic(), self.done))
        (since, first), (now, last) = self._recent[0], self._recent[-1]
        if last > first:
            left = (self._planned - self.done) * (now - since) / (last - first)
            row = {**row, "left": left}
        self._shown.update({**row, "step": self.done})

    def status(self, text: str, done: int, total: int) -> None:
        """Show work that is not made of steps."""
        self._shown.status(text, done, total)

    def message(self, text: str) -> None:
        """Show a sentence."""
        self._shown.message(text)

    def close(self) -> None:
        """The training has ended."""
        self._shown.close()


def format_row(row: Row, steps: int) -> str:
    """A row of metrics as a line of text.

    >>> format_row({"step": 20, "loss": 0.5, "recall@1": 0.25, "images/s": 310.0, "left": 65}, 100)
    'step 20/100  loss 0.5  Recall@1 25.0% (validation)  310 images/s  1:05 left'
    """
    own = ("step", "phase", "lr", "recall@1", "images/s", "left", "norm", "cosine", "seconds")
    words = [f"step {row['step']}/{steps}"]
    words += [f"{name} {value:.4g}" for name, value in row.items() if name not in own]
    if "recall@1" in row:
        words.append(f"Recall@1 {row['recall@1']:.1%} (validation)")
    if "images/s" in row:
        words.append(f"{row['images/s']:,.0f} images/s")
    if "left" in row:
        minutes, seconds = divmod(round(row["left"]), 60)
        words.append(f"{minutes}:{seconds:02} left")
    return "  ".join(words)
