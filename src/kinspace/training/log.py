"""What a training tells: metrics.jsonl always, a progress line or plain lines, TensorBoard.

Losses stay on the device until a row is due, so that no step waits for the one before it. Then the
whole window is read at once: its mean is the row, and the first step that is not finite ends the
run with the name of its batch.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TextIO

import torch
from torch import Tensor

from kinspace._core.atomic_files import write_atomically

__all__ = [
    "Lines",
    "MetricsFile",
    "NotFinite",
    "ProgressLine",
    "Reporter",
    "Window",
    "read_metrics",
]

Row = Mapping[str, Any]


class NotFinite(RuntimeError):
    """A step whose loss is NaN or infinite, or the weights after it; the samples of its batch."""

    def __init__(self, step: int, indices: list[int], *, what: str = "loss of") -> None:
        self.step = step
        self.indices = indices
        super().__init__(f"not finite: the {what} step {step}")


class Window:
    """The loss parts of the steps since the last row, unread.

    >>> window = Window()
    >>> window.add(1, {"loss": torch.tensor(2.0)}, torch.tensor([0]))
    >>> window.add(2, {"loss": torch.tensor(4.0)}, torch.tensor([1]))
    >>> window.read()
    {'loss': 3.0}
    """

    def __init__(self) -> None:
        self._steps: list[tuple[int, dict[str, Tensor], Tensor]] = []

    def add(self, step: int, parts: dict[str, Tensor], indices: Tensor) -> None:
        """Keep the parts of one step."""
        self._steps.append((step, parts, indices))

    def read(self) -> dict[str, float]:
        """The mean of each part, in float64; waits for the device. `NotFinite` if one is not."""
        if not self._steps:
            return {}
        names = list(self._steps[0][1])
        rows = [torch.stack([parts[n].float() for n in names]) for _, parts, _ in self._steps]
        table = torch.stack(rows).double().cpu()  # (steps, parts)
        bad = (~table.isfinite()).any(1).nonzero()
        if len(bad):
            step, _, indices = self._steps[int(bad[0])]
            raise NotFinite(step, indices.tolist())
        self._steps.clear()
        return dict(zip(names, table.mean(0).tolist(), strict=True))


class MetricsFile:
    """metrics.jsonl: one JSON object a line, each line complete on the disk before the next.

    after: the step to go on from; later rows, of steps that a crash undid, are taken out.
    """

    def __init__(self, path: Path, *, after: tuple[int, int] | None = None) -> None:
        if after is None:
            path.write_text("")
        else:
            kept = [row for row in read_metrics(path) if (row["phase"], row["step"]) <= after]
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


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """All rows of a metrics.jsonl; a last line that a crash cut short is left out."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows


class Reporter(Protocol):
    """Where the words go."""

    def begin(self, steps: int) -> None:
        """A training of so many steps begins."""

    def row(self, row: Row) -> None:
        """One more row of metrics."""

    def say(self, text: str) -> None:
        """A sentence."""

    def close(self) -> None:
        """The end."""


class Lines:
    """Plain lines, for a log file: one a row, at most one in `every` seconds."""

    def __init__(self, *, stream: TextIO | None = None, every: float = 5.0) -> None:
        self._steps = 0
        self._stream = stream or sys.stderr
        self._every = every
        self._last = -math.inf

    def begin(self, steps: int) -> None:
        """Rows are of so many steps."""
        self._steps, self._last = steps, -math.inf

    def row(self, row: Row) -> None:
        """Print the row if it is time for one, or if it has a validation."""
        now = time.monotonic()
        if now - self._last < self._every and "recall@1" not in row and row["step"] < self._steps:
            return
        self._last = now
        print(described(row, self._steps), file=self._stream, flush=True)

    def say(self, text: str) -> None:
        """Print the sentence."""
        print(text, file=self._stream, flush=True)

    def close(self) -> None:
        """Nothing to close."""


class ProgressLine:
    """A line that renews itself, for a terminal."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        columns = (BarColumn(bar_width=20), TextColumn("{task.description}"))
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task("", total=None)
        self._steps = 0
        self._bar.start()

    def begin(self, steps: int) -> None:
        """A bar of so many steps."""
        self._steps = steps
        self._bar.reset(self._task, total=steps, description="")

    def row(self, row: Row) -> None:
        """Renew the line."""
        text = described(row, self._steps)
        self._bar.update(self._task, completed=row["step"], description=text)

    def say(self, text: str) -> None:
        """Print the sentence above the line."""
        self._bar.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Remove the line."""
        self._bar.stop()


def described(row: Row, steps: int) -> str:
    """A row of metrics in words.

    >>> described({"step": 20, "loss": 0.5, "recall@1": 0.25, "images/s": 310.0, "left": 65}, 100)
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
