"""The web application: a page, its JSON interface, and metrics for Prometheus.

A request names a picture by its id or row, which is looked up in the gallery's table; no text of a
request becomes a path. FastAPI comes with the extra `serve`.
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
from fastapi.responses import FileResponse, JSONResponse
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException as StarletteHTTPException

from kinspace.evaluation.thresholds import RATES
from kinspace.inference.model import EmbeddingModel
from kinspace.server import openapi, queries
from kinspace.server.connections import client_address
from kinspace.server.gallery_map import GalleryMap
from kinspace.server.gallery_thumbnails import Thumbnails
from kinspace.server.metrics import TEXT_FORMAT, MetricsMiddleware
from kinspace.server.security import SecurityMiddleware
from kinspace.server.server_settings import ServerSettings
from kinspace.server.service import Service, queue_full_error
from kinspace.server.upload_limits import UploadLimitMiddleware
from kinspace.web import map_script

__all__ = ["make_app"]

STATIC = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/app.js": ("app.js", "text/javascript; charset=utf-8"),
    "/style.css": ("style.css", "text/css; charset=utf-8"),
    "/docs": ("docs.html", "text/html; charset=utf-8"),
    "/docs.js": ("docs.js", "text/javascript; charset=utf-8"),
}
LOG = logging.getLogger("kinspace.server")

Picture = Annotated[UploadFile, File(description="JPEG, PNG, WebP, AVIF, GIF, BMP or TIFF.")]
K_HELP = "Number of neighbors, 1 to 100."
K_RANGE: dict[str, Any] = {"minimum": 1, "maximum": ServerSettings.max_neighbors}
STRANGERS_RANGE: dict[str, Any] = {"minimum": RATES[0], "maximum": RATES[-1]}
STRANGERS_HELP = (
    "Share of pictures of classes the gallery does not have that may get a class: 0.001 (strict) "
    "to 0.5 (lenient). Default: that of the gallery."
)
CLASS_HELP = "A class of the gallery, or a new one; empty in a gallery without classes."
REPORT_POLICY = (  # its page is one file, with its own scripts and styles in it
    "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
FILTER_HELP = 'JSON: {"class": "io"}, {"class": ["io", "luna"], "striped": true}.'


def make_app(
    model: EmbeddingModel,
    settings: ServerSettings | None = None,
    *,
    thumbnails: Thumbnails | None = None,
    gallery_map: GalleryMap | None = None,
) -> FastAPI:
    """A web application for a model with a gallery, for uvicorn or another ASGI server.

    It answers at once; if the run folder has no map, a thread computes it.

    >>> import kinspace
    >>> app = make_app(kinspace.load("runs/moths-nra-1"))  # doctest: +SKIP
    """
    settings = settings or ServerSettings()
    service = Service(
        model, settings, thumbnails or Thumbnails(model), gallery_map or GalleryMap(model)
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        service.close()

    app = FastAPI(
        title="kinspace gallery",
        docs_url=None,  # FastAPI's own page loads scripts from other sites: /docs is ours
        redoc_url=None,
        lifespan=lifespan,
        responses=openapi.errors(),
    )
    _add_error_handlers(app)
    _add_search_routes(app, service)
    _add_gallery_routes(app, service)
    _add_change_routes(app, service)
    _add_report_routes(app, service)
    _add_monitoring_routes(app, service)
    _add_static_routes(app)
    schema = openapi.schema_with_access(app, token=settings.token is not None)
    app.openapi = schema  # type: ignore[method-assign]
    app.add_middleware(UploadLimitMiddleware, settings=settings)
    app.add_middleware(MetricsMiddleware, metrics=service.metrics)
    app.add_middleware(SecurityMiddleware, settings=settings)  # the last one added runs first
    return app


def _route_with_queue_check(service: Service) -> type[APIRoute]:
    """A route class that refuses before it reads the upload, if the queue is full."""

    class Route(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def handle_unless_full(request: Request) -> Response:
                if service.queue.is_full(_address_of(request)):
                    raise queue_full_error()
                return await handle(request)

            return handle_unless_full

    return Route


def _address_of(request: Request) -> str:
    """The client's address, for its share of the queue and of the decoders."""
    return "local" if request.client is None else client_address(request.client.host)


def _add_search_routes(app: FastAPI, service: Service) -> None:
    uploads = APIRouter(
        route_class=_route_with_queue_check(service), responses=openapi.errors(415, 422)
    )

    @uploads.post("/api/search", responses=openapi.json_response(openapi.SearchResult))
    async def search(
        request: Request,
        picture: Picture,
        k: Annotated[int, Form(description=K_HELP, json_schema_extra=K_RANGE)] = 10,
        filter: Annotated[str, Form(description=FILTER_HELP)] = "",  # noqa: A002
        strangers: Annotated[
            float | None, Form(description=STRANGERS_HELP, json_schema_extra=STRANGERS_RANGE)
        ] = None,
    ) -> Any:
        """The pictures of the gallery nearest to an uploaded one, and its class."""
        k, where = service.parse_query(k, filter)
        service.check_strangers(strangers)
        return await service.respond_to_picture(
            picture,
            _address_of(request),
            lambda vector: queries.search(service.model, vector, k, where, strangers),
        )

    @uploads.post("/api/encode", responses=openapi.json_response(openapi.Embedding))
    async def encode(request: Request, picture: Picture) -> Any:
        """The embedding of an uploaded picture, of length 1."""
        return await service.respond_to_picture(
            picture, _address_of(request), lambda vector: {"vector": vector.tolist()}
        )

    app.include_router(uploads)

    @app.get(
        "/api/neighbors/{picture_id:path}",
        responses=openapi.json_response(openapi.GalleryNeighbors) | openapi.errors(404, 422),
    )
    async def neighbors(
        picture_id: Annotated[str, PathParameter(description="An id from /api/pictures.")],
        k: Annotated[int, Query(description=K_HELP, json_schema_extra=K_RANGE)] = 10,
        filter: Annotated[str, Query(description=FILTER_HELP)] = "",  # noqa: A002
    ) -> Any:
        """The nearest other pictures of a picture of the gallery."""
        k, where = service.parse_query(k, filter)
        row = service.row_of.get(picture_id)
        if row is None:
            raise HTTPException(404, "picture: expected an id of the gallery, got another")
        return await service.respond(
            lambda: {
                "row": row,
                "id": picture_id,
                "neighbors": queries.neighbors(service.model, row, k, where),
            }
        )


def _add_gallery_routes(app: FastAPI, service: Service) -> None:
    @app.get("/api/about", responses=openapi.json_response(openapi.About))
    def about() -> Response:
        """The run: name, size, thresholds and results."""
        return Response(service.about, media_type="application/json")

    @app.get("/api/classes", responses=openapi.json_response(openapi.Classes))
    def classes() -> Response:
        """Classes and attributes, with their numbers of pictures."""
        return Response(service.classes, media_type="application/json")

    @app.get("/api/pictures", responses=openapi.json_response(openapi.PictureList))
    def pictures() -> Response:
        """Ids and labels of all pictures by row; attributes as bits, base64, low bit first."""
        return Response(service.pictures, media_type="application/json")

    @app.get("/api/map", responses=openapi.json_response(openapi.MapPositions))
    def gallery_map() -> Response:
        """State of the map; when it is "ready", positions of all pictures by row, 0 to 10,000."""
        return Response(service.gallery_map.response, media_type="application/json")

    @app.get(
        "/thumb/{row}.jpg",
        response_class=Response,
        responses=openapi.media_response("image/jpeg", "A picture.") | openapi.errors(404, 422),
    )
    def thumbnail(
        row: Annotated[str, PathParameter(description="Row of the picture.")],
    ) -> Response:
        """A thumbnail of the picture of a row."""
        if not (row.isascii() and row.isdigit() and len(row) < 10):
            raise HTTPException(404, "thumb: expected the number of a row, got another name")
        if int(row) >= len(service.thumbnails):
            raise HTTPException(404, f"thumb: expected less than {len(service.thumbnails)}")
        image = service.thumbnails.jpeg(int(row))
        headers = {"Cache-Control": "private, max-age=3600"}
        return Response(image, media_type="image/jpeg", headers=headers)


def _add_change_routes(app: FastAPI, service: Service) -> None:
    changes = APIRouter(
        route_class=_route_with_queue_check(service),
        responses=openapi.json_response(openapi.ChangedPicture) | openapi.errors(404, 415, 422),
    )

    @changes.post("/api/pictures")
    async def add_picture(
        request: Request,
        picture: Picture,
        class_name: Annotated[str, Form(alias="class", description=CLASS_HELP)] = "",
    ) -> Any:
        """Add an uploaded picture to the gallery, with --edit: it is kept in the run folder."""
        return await service.add_picture(picture, class_name, _address_of(request))

    @changes.post("/api/labels")
    async def relabel(
        picture_id: Annotated[str, Form(alias="id", description="An id from /api/pictures.")],
        class_name: Annotated[str, Form(alias="class", description=CLASS_HELP)],
    ) -> Any:
        """Give a picture of the gallery another class, with --edit."""
        return await service.relabel(picture_id, class_name)

    app.include_router(changes)


def _add_report_routes(app: FastAPI, service: Service) -> None:
    page = service.report
    if page is None:
        return
    headers = {"Content-Security-Policy": REPORT_POLICY, "Cache-Control": "no-cache"}
    # looked up here: no request names a file
    figures = {each.name: each for each in (page.parent / "figures").glob("*.*")}

    @app.get("/report/", include_in_schema=False)
    def report() -> FileResponse:
        return FileResponse(page, media_type="text/html; charset=utf-8", headers=headers)

    @app.get("/report/figures/{name}", include_in_schema=False)
    def figure(name: str) -> FileResponse:
        if name not in figures:
            raise HTTPException(404, "figure: expected one of the report, got another name")
        return FileResponse(figures[name], headers={"Content-Disposition": "attachment"})


def _add_monitoring_routes(app: FastAPI, service: Service) -> None:
    @app.get("/healthz", responses=openapi.json_response(openapi.Health))
    def health() -> dict[str, str]:
        """Answers while the server runs."""
        return {"status": "ok"}

    @app.get(
        "/metrics",
        response_class=Response,
        responses=openapi.media_response(TEXT_FORMAT, "The text format of Prometheus."),
    )
    def metrics() -> Response:
        """Metrics in the text format of Prometheus."""
        return service.metrics.response()


def _add_static_routes(app: FastAPI) -> None:
    folder = files("kinspace.server") / "static"
    for path, (name, media_type) in STATIC.items():
        # read once: no request opens a file
        handler = _static_handler((folder / name).read_bytes(), media_type)
        app.add_route(path, handler, include_in_schema=False)
    script = _static_handler(map_script().encode(), "text/javascript; charset=utf-8")
    app.add_route("/map.js", script, include_in_schema=False)


def _static_handler(content: bytes, media_type: str) -> Callable[[Request], Awaitable[Response]]:
    async def respond(_: Request) -> Response:
        return Response(content, media_type=media_type, headers={"Cache-Control": "no-cache"})

    return respond


def _add_error_handlers(app: FastAPI) -> None:
    @app.exception_handler(StarletteHTTPException)
    async def refused(request: Request, error: StarletteHTTPException) -> JSONResponse:
        headers = dict(error.headers or {})
        route = getattr(request.scope.get("route"), "path_format", "")
        methods = app.openapi()["paths"].get(route)
        if error.status_code == 405 and methods:  # Starlette names those of one function only
            headers["Allow"] = ", ".join(sorted(map(str.upper, methods)))
        return JSONResponse({"error": error.detail}, error.status_code, headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        reasons = [f"{each['loc'][-1]}: {each['msg'].lower()}" for each in error.errors()]
        return JSONResponse({"error": "; ".join(reasons)[:500]}, 422)

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> JSONResponse:
        LOG.error("%s failed: %r", request.scope.get("route"), error)
        return JSONResponse({"error": "the server failed; see its log"}, 500)
