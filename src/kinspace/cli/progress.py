"""The progress display of the commands: one line on stderr while a command runs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import typer
from rich.console import Console
from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

__all__ = ["Display", "print_next", "progress"]


@dataclass(frozen=True)
class Display:
    """The line: a description, a bar and the time elapsed."""

    _bars: Bars

    def status(self, text: str) -> None:
        """Show the step under way."""
        self._bars.update(self._bars.task_ids[0], description=f"{text} ...", completed=0)

    def count(self, done: int, total: int) -> None:
        """Show how many items of the total are done."""
        self._bars.update(self._bars.task_ids[0], completed=done, total=total)

    def print(self, text: str) -> None:
        """Print a line that stays."""
        self._bars.console.print(text, markup=False, highlight=False, soft_wrap=True)


def print_next(*commands: str) -> None:
    """Say what comes next, on stderr: what a command prints on stdout goes into files and pipes.

    >>> print_next("kinspace serve runs/photos --open")
    """
    sys.stdout.flush()  # so that it is the last line where both go to one pipe
    for command in commands:
        typer.echo(f"next: {command}", err=True)


@contextmanager
def progress(text: str = "") -> Iterator[Display]:
    """Show a display until the block ends. Where stderr is no terminal only `print` shows.

    >>> with progress("embedding") as display:
    ...     display.count(1, 2)
    ...     display.status("writing")
    """
    console = Console(stderr=True)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        TimeElapsedColumn(),
    )
    with Bars(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:
        bars.add_task(text, total=None)
        yield Display(bars)
