"""What all requests share: the model, its queue, worker threads, and responses that never change.

The event loop reads the requests; a few threads decode pictures, others search; the model has a
thread of its own (`kinspace.server.batch_queue`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from fastapi import HTTPException, Response, UploadFile
from numpy.typing import NDArray
from torch import Tensor

from kinspace._core.device import cpu_count
from kinspace.inference.inputs import network_input
from kinspace.inference.model import EmbeddingModel
from kinspace.search import Where
from kinspace.server import catalog, queries
from kinspace.server.batch_queue import BatchQueue, QueueFull, use_one_core
from kinspace.server.gallery_map import GalleryMap
from kinspace.server.gallery_thumbnails import Thumbnails
from kinspace.server.metrics import Metrics
from kinspace.server.server_settings import ServerSettings
from kinspace.server.upload_limits import read_upload

__all__ = ["Service", "queue_full_error"]

WORKERS = 4  # threads, at most
DECODERS = 2  # threads: decoding a picture may take some hundred MB
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
        # pictures are decoded by threads of their own: slow ones hold up no search
        self.decoders = ThreadPoolExecutor(DECODERS, "kinspace-decode", use_one_core)
        self.transform = model.transform
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
                inputs = await self.decoded(data)
                vector = await asyncio.wrap_future(self.queue.submit(inputs))
                return await self.respond(lambda: answer(vector))
        except QueueFull:
            raise queue_full_error() from None

    async def decoded(self, data: bytes) -> Tensor:
        """The network's input for an uploaded file; 413 if it takes too long to decode."""
        work = asyncio.get_running_loop().run_in_executor(
            self.decoders,
            lambda: network_input(read_upload(data, self.settings), self.transform),
        )
        seconds = self.settings.decode_timeout
        try:
            return await asyncio.wait_for(work, seconds)
        except TimeoutError:
            raise HTTPException(
                413, f"picture: expected one that is decoded in {seconds:g} seconds, got another"
            ) from None

    async def respond(self, answer: Callable[[], Any]) -> Response:
        """The JSON of answer(), computed by a worker thread."""
        content = await self.in_worker(lambda: catalog.to_json(answer()))
        return Response(content, media_type="application/json")

    async def in_worker(self, work: Callable[[], T]) -> T:
        """The result of work() in a worker thread; the event loop stays free."""
        return await asyncio.get_running_loop().run_in_executor(self.workers, work)

    def close(self) -> None:
        """Stop the threads."""
        self.queue.close()
        self.workers.shutdown()
        self.decoders.shutdown(wait=False, cancel_futures=True)

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


def queue_full_error() -> HTTPException:
    """The response while all slots of the queue are in use."""
    return HTTPException(
        503, "busy: too many pictures at one time; try again", {"Retry-After": "1"}
    )
