"""What all requests share: the model, its queue, worker threads, and responses that never change.

The event loop reads the requests; a few processes decode pictures, threads search; the model has a
thread of its own (`kinspace.server.batch_queue`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any, TypeVar

import numpy as np
from fastapi import HTTPException, Response, UploadFile
from numpy.typing import NDArray
from torch import Tensor

from kinspace._core.device import cpu_count
from kinspace._core.picture_process import PictureProcess, RefusedPicture
from kinspace.inference.inputs import network_input
from kinspace.inference.model import EmbeddingModel
from kinspace.search import Where
from kinspace.server import catalog, queries
from kinspace.server.batch_queue import BatchQueue, QueueFull, use_one_core
from kinspace.server.gallery_map import GalleryMap
from kinspace.server.gallery_thumbnails import Thumbnails
from kinspace.server.metrics import Metrics
from kinspace.server.server_settings import ServerSettings
from kinspace.server.upload_limits import check_size, picture_limits, refusal

__all__ = ["Service", "queue_full_error"]

WORKERS = 4  # threads, at most
T = TypeVar("T")


class Service:
    """A model, its gallery, and the threads that answer questions about them."""

    def __init__(
        self,
        model: EmbeddingModel,
        settings: ServerSettings,
        thumbnails: Thumbnails,
        gallery_map: GalleryMap,
    ) -> None:
        self.model, self.settings = model, settings
        self.thumbnails, self.gallery_map = thumbnails, gallery_map
        self.row_of = {name: row for row, name in enumerate(model.table.ids)}
        self.metrics = Metrics(queued=lambda: self.queue.slots_in_use)
        self.queue = BatchQueue(
            self._embed,
            batch_size=settings.batch_size,
            slots=settings.queue_size,
            on_batch=self.metrics.count_batch,
        )
        self.workers = ThreadPoolExecutor(
            min(WORKERS, max(2, cpu_count())), "kinspace-request", use_one_core
        )
        self.transform = model.transform
        self._all_decoders: list[PictureProcess] = []
        if model.settings is not None:
            limits = picture_limits(settings, model.settings.resize, model.settings.fit)
            self._all_decoders = [PictureProcess(limits) for _ in range(settings.decoders)]
        self._free_decoders: SimpleQueue[PictureProcess] = SimpleQueue()
        for decoder in self._all_decoders:
            self._free_decoders.put(decoder)
        # a thread for each of them: slow pictures hold up no search
        self.decoding = ThreadPoolExecutor(settings.decoders, "kinspace-decode", use_one_core)
        len(model.index)  # builds the index before several threads search it
        self.pictures = catalog.to_json(catalog.pictures(model.table))
        self.classes = catalog.to_json(catalog.classes(model.table))
        self.about = catalog.to_json(
            catalog.about(model) | {"upload_bytes": settings.max_upload_bytes}
        )

    def _embed(self, inputs: Tensor) -> Tensor:
        return self.model.embed_inputs(inputs)

    async def respond_to_picture(
        self, upload: UploadFile, answer: Callable[[NDArray[np.float32]], Any]
    ) -> Response:
        """The JSON of answer(vector) for an uploaded picture; 503 at once if the queue is full."""
        if self.model.settings is None:
            raise HTTPException(400, "picture: this model was trained on tensors, not on pictures")
        try:
            with self.queue.slot():
                data = await upload.read()
                check_size(data, self.settings)
                inputs = await in_thread(self.decoding, lambda: self.decoded(data))
                vector = await asyncio.wrap_future(self.queue.submit(inputs))
                return await self.respond(lambda: answer(vector))
        except RefusedPicture as refused:
            raise refusal(refused, self.settings) from None
        except QueueFull:
            raise queue_full_error() from None

    def start(self) -> None:
        """Start the processes that decode pictures: the first upload need not wait for them."""
        for _ in self._all_decoders:
            self.decoding.submit(self._start_decoder)

    def _start_decoder(self) -> None:
        with self._decoder() as decoder:
            decoder.start()

    @contextmanager
    def _decoder(self) -> Iterator[PictureProcess]:
        """A process that is free: there are as many as threads that ask for one."""
        decoder = self._free_decoders.get()
        try:
            yield decoder
        finally:
            self._free_decoders.put(decoder)

    def decoded(self, data: bytes) -> Tensor:
        """The network's input for an uploaded file; raises a RefusedPicture."""
        with self._decoder() as decoder:
            square = decoder.square(data)
        # the transform leaves a square as it is, and does the rest
        return network_input(square, self.transform)

    async def respond(self, answer: Callable[[], Any]) -> Response:
        """The JSON of answer(), computed by a worker thread."""
        content = await in_thread(self.workers, lambda: catalog.to_json(answer()))
        return Response(content, media_type="application/json")

    def close(self) -> None:
        """Stop the threads and processes."""
        self.queue.close()
        self.workers.shutdown()
        for decoder in self._all_decoders:
            decoder.end()
        self.decoding.shutdown(cancel_futures=True)
        for decoder in self._all_decoders:
            decoder.close()

    def parse_query(self, k: int, text: str) -> tuple[int, Where | None]:
        """Checked number of neighbors and filter; raises an HTTPException if invalid."""
        if not 1 <= k <= self.settings.max_neighbors:
            raise HTTPException(400, f"k: expected 1 to {self.settings.max_neighbors}, got {k}")
        try:
            return k, queries.parse_filter(text, self.model.table)
        except ValueError as error:
            raise HTTPException(400, str(error)) from None

    def check_strangers(self, strangers: float | None) -> None:
        """Raise an HTTPException for an invalid position of the dial."""
        if self.model.thresholds is not None:
            try:
                self.model.thresholds.at(strangers)
            except ValueError as error:
                raise HTTPException(400, str(error)) from None


async def in_thread(threads: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    """The result of work() in one of these threads; the event loop stays free."""
    return await asyncio.get_running_loop().run_in_executor(threads, work)


def queue_full_error() -> HTTPException:
    """The response while all slots of the queue are in use."""
    return HTTPException(
        503, "busy: too many pictures at one time; try again", {"Retry-After": "1"}
    )
