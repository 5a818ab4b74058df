"""A real server on a free port, in a thread."""

import io
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from prometheus_client.parser import text_string_to_metric_families

import kinspace
from bundles import digits, run_with_gallery
from kinspace.inference import EmbeddingModel
from kinspace.search.gallery import Gallery
from kinspace.server.app import make_app
from kinspace.server.server_settings import ServerSettings

ROWS = 240
get = partial(httpx.get, timeout=60)  # httpx's own 5 s pass on a busy machine
post = partial(httpx.post, timeout=60)
READY = ('body[data-map="ready"]', "#list button")  # of the page


def small_run(to: Path) -> Path:
    """The digits' run with a gallery of the first 240: a map is quickly made of them."""
    folder = run_with_gallery(to)
    model = kinspace.load(folder, "cpu")
    model.gallery = Gallery(model.table.select(range(ROWS)))
    model.save_gallery()
    return folder


def picture(row: int = 20, kind: str = "png") -> bytes:
    data = io.BytesIO()
    digits().pictures.read(row).save(data, kind)
    return data.getvalue()


@contextmanager
def running(
    model: EmbeddingModel, settings: ServerSettings | None = None, **options: Any
) -> Iterator[str]:
    """The address of a server of this model; at the end every response is one of its OpenAPI."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        app = make_app(model, settings)
        seen: set[Response] = set()
        config = uvicorn.Config(
            _noting(app, seen), log_level="critical", server_header=False, **options
        )
        server = uvicorn.Server(config)
        worker = threading.Thread(target=server.run, args=([listener],), daemon=True)
        worker.start()
        while not server.started:
            assert worker.is_alive(), "the server did not start"
            time.sleep(0.01)
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            worker.join(20)
        assert not (unknown := [each for each in seen if not _described(app, each)]), unknown


Response = tuple[str, str, int, str]  # method, route, status, content type


def _noting(app: Any, seen: set[Response]) -> Any:
    """The app; what its routes answer is added to `seen`."""

    async def noting(scope: Any, receive: Any, send: Any) -> None:
        async def noted(message: Any) -> None:
            if message["type"] == "http.response.start" and "route" in scope:
                kind = dict(message["headers"]).get(b"content-type", b"").decode()
                path = getattr(scope["route"], "path_format", "")
                seen.add((scope["method"].lower(), path, message["status"], kind))
            await send(message)

        await app(scope, receive, noted)

    return noting


def _described(app: Any, response: Response) -> bool:
    """Whether the app's OpenAPI has this status and content type; a page or a 405 needs not be."""
    method, path, status, kind = response
    route = app.openapi()["paths"].get(path)
    if route is None or status == 405:
        return True
    found = route[method]["responses"].get(str(status))
    return found is not None and kind in found["content"]


def upload(base: str, data: bytes, path: str = "/api/search", **fields: Any) -> httpx.Response:
    files = {"picture": ("odd ../name\u202e.jpg", data, "image/jpeg")}
    return post(base + path, files=files, data=fields)


def metrics(base: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    """The server's metrics: values by name and labels."""
    families = text_string_to_metric_families(get(f"{base}/metrics").text)
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }
