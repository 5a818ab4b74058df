"""A bar on the terminal for what takes long; nothing where the output is no terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress

__all__ = ["bar"]


@contextmanager
def bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A function to be called with how much is done and of how much.

    >>> with bar("embedding") as progress:
    ...     progress(1, 2)
    """
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as shown:
        task = shown.add_task(what, total=None)
        yield lambda done, total: shown.update(task, completed=done, total=total)
