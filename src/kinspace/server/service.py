"""What all requests share: the model, its queue, threads to work in, and what never changes.

A request is read by the loop that serves all; pictures are unpacked and answers worked out by a few
threads; the model has a thread of its own (`kinspace.server.batch_queue`).
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

from kinspace._core.cpus import cpu_count
from kinspace.inference.inputs import prepared
from kinspace.inference.model import Model
from kinspace.search import Where
from kinspace.server import catalog, queries
from kinspace.server.batch_queue import Batcher, Busy, one_core
from kinspace.server.gallery_thumbnails import Thumbnails
from kinspace.server.map_file import Drawing
from kinspace.server.metrics import Metrics
from kinspace.server.server_settings import Settings
from kinspace.server.upload_limits import read_upload

__all__ = ["Desk", "busy"]

WORKERS = 4  # threads, at most: unpacking a picture may take some hundred MB
T = TypeVar("T")


class Desk:
    """A model that is served; see above."""

    def __init__(
        self, model: Model, settings: Settings, thumbnails: Thumbnails, drawing: Drawing
    ) -> None:
        self.model, self.settings = model, settings
        self.thumbnails, self.drawing = thumbnails, drawing
        self.rows = {name: row for row, name in enumerate(model.table.ids)}
        self.batcher = Batcher(self._embed, size=settings.batch, places=settings.queue)
        self.pool = ThreadPoolExecutor(
            min(WORKERS, max(2, cpu_count())), "kinspace-request", one_core
        )
        self.transform = model.transform
        self.metrics = Metrics()
        len(model.index)  # brought into order before several threads ask
        self.pictures = catalog.to_json(catalog.pictures(model.table))
        self.classes = catalog.to_json(catalog.classes(model.table))
        self.about = catalog.to_json(catalog.about(model) | {"upload_bytes": settings.upload_bytes})

    def _embed(self, inputs: Tensor) -> Tensor:
        return self.model.embed_inputs(inputs)

    async def of_picture(
        self, upload: UploadFile, answer: Callable[[NDArray[np.float32]], Any]
    ) -> Response:
        """An answer about an uploaded picture; 503 at once where too many are being asked about."""
        if self.model.settings is None:
            raise HTTPException(400, "picture: this model was trained on tensors, not on pictures")
        try:
            with self.batcher.place():
                data = await upload.read()
                inputs = await self.worked(
                    lambda: prepared(read_upload(data, self.settings), self.transform)
                )
                vector = await asyncio.wrap_future(self.batcher.ask(inputs))
                return await self.answered(lambda: answer(vector))
        except Busy:
            raise busy() from None

    async def answered(self, answer: Callable[[], Any]) -> Response:
        """JSON of what is worked out."""
        said = await self.worked(lambda: catalog.to_json(answer()))
        return Response(said, media_type="application/json")

    async def worked(self, work: Callable[[], T]) -> T:
        """What a thread works out: the loop that serves all is free meanwhile."""
        return await asyncio.get_running_loop().run_in_executor(self.pool, work)

    def close(self) -> None:
        """End the threads."""
        self.batcher.close()
        self.pool.shutdown()

    def asked(self, k: int, text: str) -> tuple[int, Where | None]:
        """How many neighbors and which, or the HTTPException that says why not."""
        if not 1 <= k <= self.settings.most:
            raise HTTPException(400, f"k: expected 1 to {self.settings.most}, got {k}")
        try:
            return k, queries.where_of(text, self.model.table)
        except ValueError as error:
            raise HTTPException(400, str(error)) from None


def busy() -> HTTPException:
    """The answer where all places are taken."""
    return HTTPException(
        503, "busy: too many pictures at one time; ask again", {"Retry-After": "1"}
    )
