"""The server: a page, the JSON interface under it, and numbers for Prometheus.

Only this module and those it alone uses need the extra `serve`. A request names a picture by its id
or row, which is looked up in the gallery's table; no text of a request becomes a path.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Annotated, Any

from fastapi import (
    APIRouter,
    FastAPI,
    File,
    Form,
    HTTPException,
    Query,
    Request,
    Response,
    UploadFile,
)
from fastapi import Path as PathParameter
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException as AnyHTTPException

from kinspace.inference.model import Model
from kinspace.server import queries
from kinspace.server.gallery_thumbnails import Thumbnails
from kinspace.server.map_file import Drawing
from kinspace.server.metrics import Timed
from kinspace.server.security import Guard
from kinspace.server.server_settings import Settings
from kinspace.server.service import Desk, busy
from kinspace.server.upload_limits import BodyLimit

__all__ = ["make_app"]

STATIC = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/app.js": ("app.js", "text/javascript; charset=utf-8"),
    "/map.js": ("map.js", "text/javascript; charset=utf-8"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
    "/docs": ("docs.html", "text/html; charset=utf-8"),
    "/docs.js": ("docs.js", "text/javascript; charset=utf-8"),
}
LOG = logging.getLogger("kinspace.server")

Picture = Annotated[UploadFile, File(description="JPEG, PNG, WebP, AVIF, GIF, BMP or TIFF.")]
Number = "How many, 1 to 100."
Filter = 'JSON: {"class": "io"}, {"class": ["io", "luna"], "striped": true}.'


def _unless_full(desk: Desk) -> type[APIRoute]:
    """Routes that refuse before they read: many who are refused do not hold up the others."""

    class Route(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def unless_full(request: Request) -> Response:
                if desk.batcher.taken >= desk.settings.queue:
                    raise busy()
                return await handle(request)

            return unless_full

    return Route


def make_app(
    model: Model,
    settings: Settings | None = None,
    *,
    thumbnails: Thumbnails | None = None,
    drawing: Drawing | None = None,
) -> FastAPI:
    """A server of a model with a gallery, for uvicorn or any other that speaks ASGI.

    It answers at once; the map, where the run folder has none, comes when it is drawn.

    >>> import kinspace
    >>> app = make_app(kinspace.load("runs/moths-nra-1"))  # doctest: +SKIP
    """
    settings = settings or Settings()
    desk = Desk(model, settings, thumbnails or Thumbnails(model), drawing or Drawing(model))

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


def _add_questions(app: FastAPI, desk: Desk) -> None:
    uploads = APIRouter(route_class=_unless_full(desk))

    @uploads.post("/api/search")
    async def search(
        picture: Picture,
        k: Annotated[int, Form(description=Number)] = 10,
        filter: Annotated[str, Form(description=Filter)] = "",  # noqa: A002
    ) -> Any:
        """The pictures of the gallery nearest to an uploaded one, and what it is of."""
        k, where = desk.asked(k, filter)
        return await desk.of_picture(
            picture, lambda vector: queries.about_vector(desk.model, vector, k, where)
        )

    @uploads.post("/api/encode")
    async def encode(picture: Picture) -> Any:
        """The vector of a picture, of length 1."""
        return await desk.of_picture(picture, lambda vector: {"vector": vector.tolist()})

    app.include_router(uploads)

    @app.get("/api/neighbors/{picture_id:path}")
    async def neighbors(
        picture_id: Annotated[str, PathParameter(description="As /api/pictures has it.")],
        k: Annotated[int, Query(description=Number)] = 10,
        filter: Annotated[str, Query(description=Filter)] = "",  # noqa: A002
    ) -> Any:
        """The other pictures nearest to one of the gallery, by its id."""
        k, where = desk.asked(k, filter)
        row = desk.rows.get(picture_id)
        if row is None:
            raise HTTPException(404, "picture: expected an id of the gallery, got another")
        return await desk.answered(
            lambda: {
                "row": row,
                "id": picture_id,
                "neighbors": queries.neighbors_of(desk.model, row, k, where),
            }
        )


def _add_gallery(app: FastAPI, desk: Desk) -> None:
    @app.get("/api/about")
    def about() -> Response:
        """The run, its size, thresholds and verdict."""
        return Response(desk.about, media_type="application/json")

    @app.get("/api/classes")
    def classes() -> Response:
        """Classes and attributes with how many pictures have them."""
        return Response(desk.classes, media_type="application/json")

    @app.get("/api/pictures")
    def pictures() -> Response:
        """Every picture's id and label by row; attributes as bits, base64, low bit first."""
        return Response(desk.pictures, media_type="application/json")

    @app.get("/api/map")
    def gallery_map() -> Response:
        """Every picture's place by row, 0 to 10,000, once the state is no longer "drawing"."""
        return Response(desk.drawing.answer, media_type="application/json")

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
    folder = files("kinspace.server") / "static"
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
