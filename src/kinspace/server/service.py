"""What all requests share: the model, its queue, worker threads, and responses that never change.

The event loop reads the requests; a few processes decode pictures, threads search; the model has a
thread of its own (`kinspace.server.batch_queue`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
from fastapi import HTTPException, Response, UploadFile
from numpy.typing import NDArray
from torch import Tensor

from kinspace._core.device import cpu_count
from kinspace._core.picture_process import RefusedPicture
from kinspace.inference.inputs import network_input
from kinspace.inference.model import EmbeddingModel
from kinspace.search import Where
from kinspace.server import catalog, queries
from kinspace.server.batch_queue import BatchQueue, QueueFull, use_one_core
from kinspace.server.gallery_changes import GalleryChanges, class_name_of
from kinspace.server.gallery_map import GalleryMap
from kinspace.server.gallery_thumbnails import Thumbnails
from kinspace.server.metrics import Metrics
from kinspace.server.picture_decoders import PictureDecoders
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
        self.decoders: PictureDecoders | None = None
        if model.settings is not None:
            limits = picture_limits(settings, model.settings.resize, model.settings.fit)
            # the transform leaves a square as it is, and does the rest
            self.decoders = PictureDecoders(
                limits, settings.decoders, lambda square: network_input(square, model.transform)
            )
        len(model.index)  # builds the index before several threads search it
        self.changes = GalleryChanges(model)
        self._reading = threading.Lock()
        self.report = catalog.report_file(model)
        self._read_gallery()

    def _read_gallery(self) -> None:
        """What is known of the gallery as a whole; again after a change."""
        model, settings = self.model, self.settings
        table = model.table
        self.row_of = {name: row for row, name in enumerate(table.ids)}
        self.pictures = catalog.to_json(catalog.pictures(table))
        self.classes = catalog.to_json(catalog.classes(table))
        self.about = catalog.to_json(
            catalog.about(model)
            | {"upload_bytes": settings.max_upload_bytes, "editable": settings.editable}
        )

    def _after_change(self, picture_id: str) -> dict[str, Any]:
        with self._reading:
            self.thumbnails.update(self.model.table)
            self.gallery_map.update()
            self._read_gallery()
        row = self.row_of[picture_id]
        labels = self.model.table.labels
        name = "" if labels is None else self.model.table.class_name(int(labels[row]))
        return {"row": row, "id": picture_id, "class": name}

    async def add_picture(self, upload: UploadFile, class_name: str, address: str) -> Response:
        """Add an uploaded picture to the gallery, under a class that may be new."""
        self._require_editable()
        if self.model.table.labels is not None:
            class_name = _checked(lambda: class_name_of(class_name))
        elif class_name:
            raise HTTPException(400, "class: expected none for a gallery without classes, got one")
        data = await upload.read()
        return await self.respond_to_picture(  # which has decoded it before anything is kept
            upload,
            address,
            lambda vector: self._after_change(self.changes.add(data, vector, class_name)),
        )

    async def relabel(self, picture_id: str, class_name: str) -> Response:
        """Give a picture of the gallery another class."""
        self._require_editable()
        class_name = _checked(lambda: class_name_of(class_name))
        if picture_id not in self.row_of:
            raise HTTPException(404, "picture: expected an id of the gallery, got another")
        if self.model.table.labels is None:
            raise HTTPException(400, "class: expected none for a gallery without classes, got one")

        def change() -> dict[str, Any]:
            self.changes.relabel(picture_id, class_name)
            return self._after_change(picture_id)

        return await self.respond(change)

    def _require_editable(self) -> None:
        if not self.settings.editable:
            raise HTTPException(
                403, "gallery: this server does not change it; it is started with --edit to do so"
            )

    def _embed(self, inputs: Tensor) -> Tensor:
        return self.model.embed_inputs(inputs)

    async def respond_to_picture(
        self, upload: UploadFile, address: str, answer: Callable[[NDArray[np.float32]], Any]
    ) -> Response:
        """The JSON of answer(vector) for an uploaded picture; 503 at once if the queue is full.

        address: of the client, whose share of the queue and of the decoders this takes.
        """
        if self.decoders is None:
            raise HTTPException(400, "picture: this model was trained on tensors, not on pictures")
        try:
            with self.queue.slot(address):
                check_size(upload.size or 0, self.settings)
                inputs = await self.decoders.decode(upload.file, address)
                vector = await asyncio.wrap_future(self.queue.submit(inputs))
                return await self.respond(lambda: answer(vector))
        except RefusedPicture as refused:
            raise refusal(refused, self.settings) from None
        except QueueFull:
            raise queue_full_error() from None

    def start(self) -> None:
        """Start the processes that decode pictures: the first upload need not wait for them."""
        if self.decoders is not None:
            self.decoders.start()

    async def respond(self, answer: Callable[[], Any]) -> Response:
        """The JSON of answer(), computed by a worker thread."""
        content = await in_thread(self.workers, lambda: catalog.to_json(answer()))
        return Response(content, media_type="application/json")

    def close(self) -> None:
        """Stop the threads and processes."""
        self.queue.close()
        self.workers.shutdown()
        if self.decoders is not None:
            self.decoders.close()

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


def _checked(work: Callable[[], T]) -> T:
    try:
        return work()
    except ValueError as error:
        raise HTTPException(400, str(error)) from None


def queue_full_error() -> HTTPException:
    """The response while all slots of the queue are in use."""
    return HTTPException(
        503, "busy: too many pictures at one time; try again", {"Retry-After": "1"}
    )
