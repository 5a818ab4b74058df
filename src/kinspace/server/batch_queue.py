"""A queue of model inputs from concurrent requests, run through the model in batches by one thread.

The thread never waits for a batch to fill: all inputs that arrive while the model runs are the next
batch.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kinspace._core.device import cpu_count

__all__ = ["BatchQueue", "QueueFull", "Vector", "use_one_core"]

Vector = NDArray[np.float32]


def use_one_core() -> None:
    """Limit torch to one core in this thread, for threads that share the cores with others."""
    torch.set_num_threads(1)


class QueueFull(Exception):
    """All slots are in use."""


class BatchQueue:
    """A model and the thread that runs it.

    embed: maps inputs (batch, ...) to vectors (batch, dim). batch_size: at most. slots: the number
    of requests at one time; an address has half of those that the others leave, so that there is
    always one for the next address. on_batch: called with the size of each batch that was run.

    >>> queue = BatchQueue(lambda inputs: 2 * inputs, batch_size=4, slots=1)
    >>> with queue.slot():
    ...     queue.submit(torch.ones(2)).result()
    array([2., 2.], dtype=float32)
    >>> queue.close()
    """

    def __init__(
        self,
        embed: Callable[[Tensor], Tensor],
        *,
        batch_size: int,
        slots: int,
        on_batch: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._embed = embed
        self._batch_size = batch_size
        self._on_batch = on_batch
        # torch's threads wait for each other: without a core for the requests, each request would
        # hold up one of them and so all
        self._threads = max(1, min(torch.get_num_threads(), cpu_count() - 1))
        self._slots = slots
        self._of_address: Counter[str] = Counter()
        self._inputs: SimpleQueue[tuple[Tensor, Future[Vector]] | None] = SimpleQueue()
        self.slots_in_use = 0
        self._lock = threading.Lock()
        self._worker = threading.Thread(target=self._work, name="kinspace-model", daemon=True)
        self._worker.start()

    def is_full(self, address: str = "") -> bool:
        """Whether there is no slot for another request of this address."""
        return self._of_address[address] >= self._slots - self.slots_in_use

    @contextmanager
    def slot(self, address: str = "") -> Iterator[None]:
        """Hold a slot for a request; raises `QueueFull` at once if there is none."""
        with self._lock:
            if self.is_full(address):
                raise QueueFull
            self._of_address[address] += 1
            self.slots_in_use += 1
        try:
            yield
        finally:
            with self._lock:
                self.slots_in_use -= 1
                self._of_address[address] -= 1
                if not self._of_address[address]:
                    del self._of_address[address]

    def submit(self, inputs: Tensor) -> Future[Vector]:
        """The future vector of one input."""
        result: Future[Vector] = Future()
        self._inputs.put((inputs, result))
        return result

    def close(self) -> None:
        """Stop the thread when everything submitted before is done."""
        self._inputs.put(None)
        self._worker.join()

    def _work(self) -> None:
        torch.set_num_threads(self._threads)
        while (first := self._inputs.get()) is not None:
            batch = [first]
            while len(batch) < self._batch_size:
                try:
                    item = self._inputs.get_nowait()
                except Empty:
                    break
                if item is None:
                    self._inputs.put(None)
                    break
                batch.append(item)
            # drops canceled futures; the others can no longer be canceled
            self._run([item for item in batch if item[1].set_running_or_notify_cancel()])

    def _run(self, batch: list[tuple[Tensor, Future[Any]]]) -> None:
        if not batch:
            return
        try:
            vectors = self._embed(torch.stack([inputs for inputs, _ in batch])).cpu().numpy()
        except Exception as error:  # noqa: BLE001 - the caller gets it, the thread continues
            if len(batch) == 1:
                batch[0][1].set_exception(error)
            else:  # a single input may be at fault
                for item in batch:
                    self._run([item])
            return
        self._on_batch(len(batch))
        for vector, (_, result) in zip(vectors, batch, strict=True):
            result.set_result(vector)
