"""Map a function over many pictures with several processes.

This is `concurrent.futures` and not joblib: joblib's workers get a copy of a shared tensor, which
cannot be written to, receive all arguments with every part, and import torch one by one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing.context import BaseContext
from typing import Any, TypeVar

from torch import multiprocessing  # passes tensors in shared memory

__all__ = ["CHUNK", "chunks", "process_map"]

Result = TypeVar("Result")
CHUNK = 64  # pictures per task


def chunks(begin: int, end: int, workers: int) -> list[range]:
    """Ranges of neighbors, because archives are read in order, at least one per worker.

    >>> chunks(0, 5, workers=2)
    [range(0, 3), range(3, 5)]
    """
    size = max(1, min(CHUNK, -(-(end - begin) // workers)))
    return [range(start, min(start + size, end)) for start in range(begin, end, size)]


def process_map(
    task: partial[Result], parts: Sequence[Any], workers: int, *, what: str
) -> Iterator[Result]:
    """`task(part)` of each part, in their order.

    The arguments of the task are sent to each process once, not with every part.
    what: a verb and its object for the error message, "read pictures".
    """
    if not parts:
        return
    context = _context(task.func.__module__)
    try:
        with ProcessPoolExecutor(
            min(workers, len(parts)), context, initializer=_set_task, initargs=(task,)
        ) as pool:
            with _without_script(task):
                results = pool.map(_run_task, parts)  # starts the processes
            yield from results
    except BrokenProcessPool as error:
        raise RuntimeError(
            f"the processes that {what} ended early; in a script, start under "
            "`if __name__ == '__main__':`, or pass workers=1"
        ) from error


@contextmanager
def _without_script(task: partial[Any]) -> Iterator[None]:
    """Start processes that do not import the running script.

    Importing runs it again: a script without `if __name__ == '__main__':` would start processes
    without end. It is needed only where a task holds an object that the script defines.
    """
    script = sys.modules["__main__"]
    needed = any(type(argument).__module__ == "__main__" for argument in task.args)
    hidden = {} if needed else {"__file__": None, "__spec__": None}
    kept = {name: getattr(script, name) for name in hidden if hasattr(script, name)}
    try:
        for name in kept:
            setattr(script, name, None)
        yield
    finally:
        for name, value in kept.items():
            setattr(script, name, value)


def _context(module: str) -> BaseContext:
    # No plain fork: the caller may have threads (torch has), and a fork would copy their locks.
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    # modules, torch above all, are imported once, by the process that all workers are forked from
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, module])
    return context


_task: Callable[[Any], Any]  # of a worker process


def _set_task(task: Callable[[Any], Any]) -> None:
    global _task  # noqa: PLW0603
    _task = task


def _run_task(part: Any) -> Any:
    return _task(part)
