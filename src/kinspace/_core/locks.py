"""Locks: between the threads that read and change one object, and between processes on one folder.

`SharedLock` lets many threads read at one time and one change, alone. `FolderLock` is for one
process at a time; the system releases it when the process ends, however it ends, so that nothing
is left locked by a process that was killed.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

__all__ = ["FolderLock", "SharedLock", "try_lock"]

# a file system that has no locks, as some network file systems: one goes on without
WITHOUT_LOCKS = (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK, errno.EINVAL)
POLL = 0.05  # seconds between two attempts


class SharedLock:
    """Many readers or one writer. A writer that waits goes before readers that come after it.

    A thread that reads must not write before it has ended reading.

    >>> lock = SharedLock()
    >>> with lock.reading(), lock.reading():
    ...     pass
    >>> with lock.writing():
    ...     pass
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._readers = 0
        self._waiting = 0
        self._writing = False

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Together with other readers, and with no writer."""
        with self._changed:
            self._changed.wait_for(lambda: not self._writing and not self._waiting)
            self._readers += 1
        try:
            yield
        finally:
            with self._changed:
                self._readers -= 1
                self._changed.notify_all()

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Alone."""
        with self._changed:
            self._waiting += 1
            try:
                self._changed.wait_for(lambda: not self._writing and not self._readers)
            finally:
                self._waiting -= 1
                self._changed.notify_all()
            self._writing = True
        try:
            yield
        finally:
            with self._changed:
                self._writing = False
                self._changed.notify_all()


@dataclass
class _Held:
    """The lock of a file as this process has it; threads wait for each other."""

    threads: threading.RLock = field(default_factory=threading.RLock)  # type: ignore[valid-type]
    depth: int = 0
    stream: IO[str] | None = None


_HELD: dict[str, _Held] = {}
_REGISTRY = threading.Lock()


class FolderLock:
    """A lock file that one process holds at a time; its text says which one, and what for.

    Threads of one process wait for each other, and a thread may take the lock again that it has.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     lock = FolderLock(Path(folder) / "gallery.lock")
    ...     with lock.held("an example"), lock.held("the same thread"):
    ...         "an example" in lock.holder()
    True
    """

    def __init__(self, file: Path) -> None:
        self.file = file

    @contextmanager
    def held(self, what: str, *, wait: float = 10.0) -> Iterator[None]:
        """Hold the lock; a BlockingIOError that names the holder after `wait` seconds without it.

        what: what the lock is held for, as other processes say it.
        """
        with _REGISTRY:
            ours = _HELD.setdefault(str(self.file.absolute()), _Held())
        with ours.threads:  # type: ignore[attr-defined]
            if not ours.depth:
                ours.stream = self._acquired(what, wait)
            ours.depth += 1
            try:
                yield
            finally:
                ours.depth -= 1
                if not ours.depth and ours.stream is not None:
                    _clear(ours.stream)
                    ours.stream.close()  # and with it the lock
                    ours.stream = None

    def _acquired(self, what: str, wait: float) -> IO[str]:
        stream = self.file.open("a+", encoding="utf-8")
        try:
            end = time.monotonic() + wait
            while not try_lock(stream):
                if time.monotonic() >= end:
                    raise BlockingIOError(
                        errno.EWOULDBLOCK,
                        f"expected to be alone in this folder, but it is in use by {self.holder()}"
                        "; try again when that is done",
                        str(self.file.parent),
                    )
                time.sleep(POLL)
            _clear(stream)
            stream.write(json.dumps(_description(what)))
            stream.flush()
        except BaseException:
            stream.close()
            raise
        return stream

    def holder(self) -> str:
        """The process that holds the lock, in words."""
        try:
            about = json.loads(self.file.read_text(encoding="utf-8"))
            return (
                f"process {about['process']} on {about['host']} ({about['what']}), "
                f"since {about['since']}"
            )
        except (OSError, ValueError, KeyError, TypeError):
            return "another process"


def _description(what: str) -> dict[str, object]:
    return {
        "process": os.getpid(),
        "host": socket.gethostname(),
        "what": what,
        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
    }


def _clear(stream: IO[str]) -> None:
    stream.seek(0)
    stream.truncate()


def try_lock(stream: IO[str]) -> bool:
    """Lock an open file; False if another open file of it has the lock.

    A process that was started with the open file has the lock too, until it ends.
    """
    try:
        if sys.platform == "win32":
            import msvcrt

            # a byte far behind the text, which others may read
            stream.seek(2**30)
            msvcrt.locking(stream.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(stream.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):
            return False
        if error.errno not in WITHOUT_LOCKS:
            raise
    return True
