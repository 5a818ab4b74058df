"""Uploads decoded by processes of their own, so that nobody's pictures wait for all of another's.

Addresses take turns: however many pictures one of them sends, the others wait for one of these at
most. Pictures of usual size are decoded by `QUICK` processes that refuse larger ones by their
header. Those, and what takes longer than a usual picture, go to one more process, which runs at a
lower priority: they hold up neither smaller pictures nor the model.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from typing import IO, Generic, TypeVar

from PIL import Image
from torch import Tensor

from kinspace._core.picture_process import PictureLimits, PictureProcess, RefusedPicture
from kinspace.server.batch_queue import use_one_core

__all__ = ["PictureDecoders", "TurnQueue"]

USUAL_PIXELS = 4_000_000
USUAL_SECONDS = 1.0
LOWER = 5  # how much lower the priority of the process for the rest is, as by `nice`
T = TypeVar("T")
Job = tuple[IO[bytes], Future[Tensor]]


class TurnQueue(Generic[T]):
    """Items of many addresses, which take turns.

    >>> queue = TurnQueue[int]()
    >>> for address, item in (("a", 1), ("a", 2), ("a", 3), ("b", 4)):
    ...     queue.put(address, item)
    >>> [queue.get() for _ in range(4)]
    [1, 4, 2, 3]
    """

    def __init__(self) -> None:
        self._waiting: dict[str, deque[T]] = {}  # the address whose turn is next comes first
        self._changed = threading.Condition()
        self._closed = False

    def put(self, address: str, item: T) -> None:
        """Add an item of an address."""
        with self._changed:
            self._waiting.setdefault(address, deque()).append(item)
            self._changed.notify()

    def get(self) -> T | None:
        """Wait for the next item; None when the queue is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if self._closed:
                return None
            address = next(iter(self._waiting))
            items = self._waiting.pop(address)
            item = items.popleft()
            if items:
                self._waiting[address] = items  # behind all others
            return item

    def close(self) -> list[T]:
        """Let everyone who waits go; returns the items that nobody took."""
        with self._changed:
            self._closed = True
            left = [item for items in self._waiting.values() for item in items]
            self._waiting.clear()
            self._changed.notify_all()
            return left


class PictureDecoders:
    """Processes that make network inputs of uploaded files, and the threads that wait for them.

    count: processes for pictures of usual size, beside the one for the rest, which starts when it
    is needed. finish: makes an input of a square.
    """

    def __init__(
        self, limits: PictureLimits, count: int, finish: Callable[[Image.Image], Tensor]
    ) -> None:
        quick = replace(
            limits,
            pixels=min(limits.pixels, USUAL_PIXELS),
            seconds=min(limits.seconds, USUAL_SECONDS),
        )
        self._finish = finish
        self._usual, self._rest = TurnQueue[Job](), TurnQueue[Job]()
        self._slow: Counter[str] = Counter()  # pictures by address that took too long, in process
        self._quick = [PictureProcess(quick) for _ in range(count)]
        self._all = [*self._quick, PictureProcess(replace(limits, nice=LOWER))]
        self._threads = [
            threading.Thread(target=self._work, args=(process, queue), daemon=True)
            for process, queue in zip(self._all, [self._usual] * count + [self._rest], strict=True)
        ]

    def start(self) -> None:
        """Start the threads; those of the usual pictures start their processes at once."""
        for thread in self._threads:
            thread.start()

    async def decode(self, file: IO[bytes], address: str) -> Tensor:
        """The network's input for a file of this address; raises a RefusedPicture."""
        if not self._slow[address]:
            try:
                return await self._put(self._usual, file, address)
            except RefusedPicture as refused:
                if refused.kind not in ("pixels", "time"):
                    raise
                late = refused.kind == "time"
        else:
            late = True  # as the one before: it need not be tried
        self._slow[address] += late
        try:
            return await self._put(self._rest, file, address)
        finally:
            self._slow[address] -= late
            if not self._slow[address]:
                del self._slow[address]

    async def _put(self, queue: TurnQueue[Job], file: IO[bytes], address: str) -> Tensor:
        result: Future[Tensor] = Future()
        queue.put(address, (file, result))
        return await asyncio.wrap_future(result)

    def _work(self, process: PictureProcess, queue: TurnQueue[Job]) -> None:
        use_one_core()
        if process in self._quick:
            with suppress(RuntimeError):  # which the first picture's request gets
                process.start()
        while (job := queue.get()) is not None:
            file, result = job
            if not result.set_running_or_notify_cancel():
                continue
            try:
                file.seek(0)
                result.set_result(self._finish(process.square(file.read())))
            except Exception as error:  # noqa: BLE001 - the request gets it, the thread goes on
                result.set_exception(error)

    def close(self) -> None:
        """End the processes and threads; what waits is canceled."""
        for queue in (self._usual, self._rest):
            for _, result in queue.close():
                result.cancel()
        for process in self._all:
            process.end()
        for thread in self._threads:
            thread.join()
        for process in self._all:
            process.close()
