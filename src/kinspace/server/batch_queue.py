"""Concurrent requests through a model in batches, by one thread.

Nothing waits for a batch to fill: what has come in while the model was at work is the next batch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kinspace._core.cpus import cpu_count

__all__ = ["Batcher", "Busy", "Vector", "one_core"]

Vector = NDArray[np.float32]


def one_core() -> None:
    """Let torch work in this thread alone: for each of many threads, which share the cores."""
    torch.set_num_threads(1)


class Busy(Exception):
    """All places are taken."""


class Batcher:
    """A model, and the thread that asks it.

    embed: from inputs (batch, ...) to vectors. size: of a batch, at most. places: asked for at one
    time, at most.

    >>> batcher = Batcher(lambda inputs: 2 * inputs, size=4, places=1)
    >>> with batcher.place():
    ...     batcher.ask(torch.ones(2)).result()
    array([2., 2.], dtype=float32)
    >>> batcher.close()
    """

    def __init__(self, embed: Callable[[Tensor], Tensor], *, size: int, places: int) -> None:
        self._embed = embed
        self._size = size
        # torch's threads wait for each other: one core is left to the requests, which would hold up
        # one of them and so all
        self._threads = max(1, min(torch.get_num_threads(), cpu_count() - 1))
        self._free = threading.BoundedSemaphore(places)
        self._asked: SimpleQueue[tuple[Tensor, Future[Vector]] | None] = SimpleQueue()
        self.taken = 0  # places
        self.batches = 0
        self.pictures = 0
        self._counting = threading.Lock()
        self._worker = threading.Thread(target=self._work, name="kinspace-model", daemon=True)
        self._worker.start()

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place for a request; `Busy` at once where there is none."""
        if not self._free.acquire(blocking=False):
            raise Busy
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)
            self._free.release()

    def _count(self, by: int) -> None:
        with self._counting:
            self.taken += by

    def ask(self, inputs: Tensor) -> Future[Vector]:
        """The vector of one input, when its batch has been through the model."""
        answer: Future[Vector] = Future()
        self._asked.put((inputs, answer))
        return answer

    def close(self) -> None:
        """Let the worker end when all that came before is done."""
        self._asked.put(None)
        self._worker.join()

    def _work(self) -> None:
        torch.set_num_threads(self._threads)
        while (first := self._asked.get()) is not None:
            batch = [first]
            while len(batch) < self._size:
                try:
                    more = self._asked.get_nowait()
                except Empty:
                    break
                if more is None:
                    self._asked.put(None)
                    break
                batch.append(more)
            # nobody waits any more for some; the others can no longer be called off
            self._answer([one for one in batch if one[1].set_running_or_notify_cancel()])

    def _answer(self, batch: list[tuple[Tensor, Future[Any]]]) -> None:
        if not batch:
            return
        try:
            vectors = self._embed(torch.stack([inputs for inputs, _ in batch])).cpu().numpy()
        except Exception as error:  # noqa: BLE001 - the one who asked gets it, the worker lives on
            if len(batch) == 1:
                batch[0][1].set_exception(error)
            else:  # one of them may be at fault alone
                for one in batch:
                    self._answer([one])
            return
        self.batches += 1
        self.pictures += len(batch)
        for vector, (_, answer) in zip(vectors, batch, strict=True):
            answer.set_result(vector)
