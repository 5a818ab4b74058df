"""The server: a page, the JSON interface under it, and numbers for Prometheus.

Only this module and those it alone uses need the extra `serve`. A request names a picture by its id
or row, which is looked up in the gallery's table; no text of a request becomes a path.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Annotated, Any

import numpy as np
from fastapi import FastAPI, File, Form, HTTPException, Query, Request, Response, UploadFile
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from numpy.typing import NDArray
from starlette.exceptions import HTTPException as AnyHTTPException
from torch import Tensor

from kinspace.bundle.inputs import prepared
from kinspace.bundle.model import Model
from kinspace.gallery import asking, catalog
from kinspace.gallery.batching import Batcher, Busy
from kinspace.gallery.limits import BodyLimit, read_upload
from kinspace.gallery.metrics import Metrics, Timed
from kinspace.gallery.places import gallery_places
from kinspace.gallery.security import Guard
from kinspace.gallery.settings import Settings
from kinspace.gallery.thumbnails import Thumbnails
from kinspace.search import Where

__all__ = ["make_app"]

STATIC = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/app.js": ("app.js", "text/javascript; charset=utf-8"),
    "/map.js": ("map.js", "text/javascript; charset=utf-8"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
    "/docs": ("docs.html", "text/html; charset=utf-8"),
    "/docs.js": ("docs.js", "text/javascript; charset=utf-8"),
}
DECODERS = 4  # pictures unpacked at one time: each may take some hundred MB
LOG = logging.getLogger("kinspace.gallery")

Picture = Annotated[UploadFile, File(description="JPEG, PNG, WebP, AVIF, GIF, BMP or TIFF.")]
Filter = 'JSON: {"class": "io"}, {"class": ["io", "luna"], "striped": true}.'


class _Desk:
    """What all requests share."""

    def __init__(self, model: Model, settings: Settings, thumbnails: Thumbnails) -> None:
        self.model, self.settings, self.thumbnails = model, settings, thumbnails
        self.rows = {name: row for row, name in enumerate(model.table.ids)}
        self.batcher = Batcher(self._embed, size=settings.batch, places=settings.queue)
        self.pool = ThreadPoolExecutor(settings.queue, "kinspace-request")
        self.decoding = threading.Semaphore(DECODERS)
        self.metrics = Metrics()
        len(model.index)  # brought into order before several threads ask
        self.map = _json(catalog.map_of(model.table, gallery_places(model)))
        self.classes = _json(catalog.classes(model.table))
        self.about = _json(catalog.about(model) | {"upload_bytes": settings.upload_bytes})

    def _embed(self, inputs: Tensor) -> Tensor:
        return self.model.embed_inputs(inputs)

    async def of_picture(
        self, upload: UploadFile, answer: Callable[[NDArray[np.float32]], Any]
    ) -> Any:
        """An answer about an uploaded picture; 503 at once where too many are being asked about."""
        try:
            with self.batcher.place():
                data = await upload.read()
                work = asyncio.get_running_loop().run_in_executor
                return await work(self.pool, lambda: answer(self._vector(data)))
        except Busy:
            raise HTTPException(
                503, "busy: too many pictures at one time; ask again", {"Retry-After": "1"}
            ) from None

    def _vector(self, data: bytes) -> NDArray[np.float32]:
        if self.model.settings is None:
            raise HTTPException(400, "picture: this model was trained on tensors, not on pictures")
        with self.decoding:
            inputs = prepared(read_upload(data, self.settings), self.model.transform)
        return self.batcher.vector(inputs)

    def close(self) -> None:
        self.batcher.close()
        self.pool.shutdown()

    def asked(self, k: int, text: str) -> tuple[int, Where | None]:
        if not 1 <= k <= self.settings.most:
            raise HTTPException(400, f"k: expected 1 to {self.settings.most}, got {k}")
        try:
            return k, asking.where_of(text, self.model.table)
        except ValueError as error:
            raise HTTPException(400, str(error)) from None


def make_app(
    model: Model, settings: Settings | None = None, *, thumbnails: Thumbnails | None = None
) -> FastAPI:
    """A server of a model with a gallery, for uvicorn or any other that speaks ASGI.

    >>> import kinspace
    >>> app = make_app(kinspace.load("runs/moths-nra-1"))  # doctest: +SKIP
    """
    settings = settings or Settings()
    desk = _Desk(model, settings, thumbnails or Thumbnails(model))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        desk.close()

    app = FastAPI(
        title="kinspace gallery",
        docs_url=None,  # FastAPI's own page loads from elsewhere: /docs is ours
        redoc_url=None,
        lifespan=lifespan,
    )
    _add_errors(app)
    _add_questions(app, desk)
    _add_gallery(app, desk)
    _add_page(app)
    app.add_middleware(BodyLimit, settings=settings)
    app.add_middleware(Timed, metrics=desk.metrics)
    app.add_middleware(Guard, settings=settings)  # the last added is asked first
    return app


def _add_questions(app: FastAPI, desk: _Desk) -> None:
    @app.post("/api/search")
    async def search(
        picture: Picture,
        k: Annotated[int, Form()] = 10,
        filter: Annotated[str, Form(description=Filter)] = "",  # noqa: A002
    ) -> Any:
        """The pictures of the gallery nearest to an uploaded one, and what it is of."""
        k, where = desk.asked(k, filter)
        return await desk.of_picture(
            picture, lambda vector: asking.about_vector(desk.model, vector, k, where)
        )

    @app.post("/api/encode")
    async def encode(picture: Picture) -> Any:
        """The vector of a picture, of length 1."""
        return await desk.of_picture(picture, lambda vector: {"vector": vector.tolist()})

    @app.get("/api/neighbors/{picture_id:path}")
    def neighbors(
        picture_id: str,
        k: int = 10,
        filter: Annotated[str, Query(description=Filter)] = "",  # noqa: A002
    ) -> Any:
        """The other pictures nearest to one of the gallery, by its id."""
        k, where = desk.asked(k, filter)
        row = desk.rows.get(picture_id)
        if row is None:
            raise HTTPException(404, "picture: expected an id of the gallery, got another")
        found = asking.neighbors_of(desk.model, row, k, where)
        return {"row": row, "id": picture_id, "neighbors": found}


def _add_gallery(app: FastAPI, desk: _Desk) -> None:
    @app.get("/api/about")
    def about() -> Response:
        """The run, its size, thresholds and verdict."""
        return Response(desk.about, media_type="application/json")

    @app.get("/api/classes")
    def classes() -> Response:
        """Classes and attributes with how many pictures have them."""
        return Response(desk.classes, media_type="application/json")

    @app.get("/api/map")
    def gallery_map() -> Response:
        """Every picture's place, label and id by row; attributes as bits, base64, low bit first."""
        return Response(desk.map, media_type="application/json")

    @app.get("/thumb/{name}.jpg")
    def thumbnail(name: str) -> Response:
        """A small picture of a row of the gallery."""
        if not (name.isascii() and name.isdigit() and len(name) < 10):
            raise HTTPException(404, "thumb: expected the number of a row, got another name")
        if int(name) >= len(desk.thumbnails):
            raise HTTPException(404, f"thumb: expected less than {len(desk.thumbnails)}")
        image = desk.thumbnails.jpeg(int(name))
        kept = {"Cache-Control": "private, max-age=3600"}
        return Response(image, media_type="image/jpeg", headers=kept)

    @app.get("/healthz")
    def health() -> dict[str, str]:
        """Whether the server answers."""
        return {"status": "ok"}

    @app.get("/metrics")
    def metrics() -> Response:
        """Numbers in the text format of Prometheus."""
        kind = "text/plain; version=0.0.4; charset=utf-8"
        return Response(desk.metrics.text(desk.batcher), media_type=kind)


def _add_page(app: FastAPI) -> None:
    folder = files("kinspace.gallery") / "static"
    for path, (name, kind) in STATIC.items():
        # read once: a request touches no file
        app.add_route(path, _always((folder / name).read_bytes(), kind), include_in_schema=False)


def _always(content: bytes, kind: str) -> Callable[[Request], Awaitable[Response]]:
    async def page(_: Request) -> Response:
        return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})

    return page


def _add_errors(app: FastAPI) -> None:
    @app.exception_handler(AnyHTTPException)
    async def refused(_: Request, error: AnyHTTPException) -> JSONResponse:
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)

    @app.exception_handler(RequestValidationError)
    async def malformed(_: Request, error: RequestValidationError) -> JSONResponse:
        said = [f"{each['loc'][-1]}: {each['msg'].lower()}" for each in error.errors()]
        return JSONResponse({"error": "; ".join(said)[:500]}, 422)

    @app.exception_handler(Exception)
    async def broken(request: Request, error: Exception) -> JSONResponse:
        LOG.error("%s failed: %r", request.scope.get("route"), error)
        return JSONResponse({"error": "the server failed; its log says why"}, 500)


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
