"""Starts a server for a run: `kinspace serve`."""

from __future__ import annotations

import errno
import json
import os
import socket
import threading
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from kinspace.inference import EmbeddingModel, load
from kinspace.server.gallery_map import GalleryMap
from kinspace.server.gallery_thumbnails import Thumbnails
from kinspace.server.server_settings import ServerSettings, settings_for_address

__all__ = ["listen_at", "report_missing_pictures", "require_server", "serve"]

SHUTDOWN = 10  # seconds for the requests under way


def serve(  # noqa: PLR0913 - the options of `kinspace serve`
    run: EmbeddingModel | str | Path,
    data: Any = None,
    *,
    address: tuple[str, int] = ("127.0.0.1", 8000),
    settings: ServerSettings | None = None,
    unprotected: bool = False,
    device: str | None = None,
    open_browser: bool = False,
    status: Callable[[str], None] = lambda text: None,
) -> None:
    """Serve a run's gallery until interrupted.

    data: the gallery's pictures, if they are not the run's own. address: host and port; one that
    other machines can reach requires a token, unless `unprotected`. A port in use is an error that
    names the next free one. open_browser: show the page when the server answers. status: called
    with messages for the terminal.

    >>> serve("runs/moths-nra-1", status=print)  # doctest: +SKIP
    5,000 pictures at http://127.0.0.1:8000  (stop with Ctrl-C)
    """
    _require_packages()
    host, port = address
    settings = settings_for_address(settings or ServerSettings(), host, unprotected=unprotected)
    listener = listen_at(host, port)
    with listener:
        _serve(run, data, listener, settings, device, open_browser=open_browser, status=status)


def require_server(host: str, port: int) -> None:
    """A ValueError if a server could not start: packages are missing, or the port is in use.

    >>> require_server("127.0.0.1", 0)
    """
    _require_packages()
    listen_at(host, port).close()


def _require_packages() -> None:
    try:
        import uvicorn  # noqa: F401 - looked for before the model is loaded

        import kinspace.server.app
        import kinspace.server.connections  # noqa: F401
    except ImportError as error:
        raise ValueError(
            f"serve: needs {error.name}; install it with: pip install 'kinspace[serve]'"
        ) from None


def _serve(
    run: EmbeddingModel | str | Path,
    data: Any,
    listener: socket.socket,
    settings: ServerSettings,
    device: str | None,
    *,
    open_browser: bool,
    status: Callable[[str], None],
) -> None:
    import uvicorn

    from kinspace.server.app import make_app
    from kinspace.server.connections import limited_protocol

    model = run if isinstance(run, EmbeddingModel) else load(run, device)
    thumbnails = Thumbnails(model, data)
    report_missing_pictures(model, thumbnails, command="serve", status=status)
    gallery_map = GalleryMap(model, status)
    app = make_app(model, settings, thumbnails=thumbnails, gallery_map=gallery_map)
    url = _url(listener)
    count = f"{len(model.table):,} pictures"

    def show() -> None:
        if not webbrowser.open(url):
            status("no browser was found here; open that address in one")

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            if self.should_exit:
                return
            status(f"{count} at {url}  (stop with Ctrl-C)")
            if open_browser:  # a browser may take its time: the server answers meanwhile
                threading.Thread(target=show, daemon=True).start()

    config = uvicorn.Config(
        app,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        http=limited_protocol(settings),
        timeout_graceful_shutdown=SHUTDOWN,
    )
    with suppress(KeyboardInterrupt):
        Server(config).run(sockets=[listener])


def listen_at(host: str, port: int) -> socket.socket:
    """A socket that has the address; a ValueError with the next free port if it is in use.

    >>> with listen_at("127.0.0.1", 0) as listener:
    ...     listener.getsockname()[0]
    '127.0.0.1'
    """
    try:
        return _bound(host, port)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise ValueError(f"host: cannot listen at {host} port {port}: {error}") from None
    for other in range(port + 1, min(port + 100, 65536)):
        with suppress(OSError), _bound(host, other):
            raise ValueError(f"port: {port} is in use; the next free one is --port {other}")
    raise ValueError(f"port: {port} is in use; give another one: --port NUMBER")


def _bound(host: str, port: int) -> socket.socket:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # with its protocol: asyncio sends answers without delay (TCP_NODELAY) where it knows that one
    listener = socket.socket(*found[0][:3])
    try:
        if os.name == "posix":  # elsewhere it lets two servers have one port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(found[0][4])
    except OSError:
        listener.close()
        raise
    return listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def report_missing_pictures(
    model: EmbeddingModel, thumbnails: Thumbnails, *, command: str, status: Callable[[str], None]
) -> None:
    """Send a message if pictures are missing, with the command that shows them."""
    if thumbnails.missing:
        status(
            f"{thumbnails.missing:,} of {len(thumbnails):,} pictures are not found and shown gray; "
            f"give their folder: kinspace {command} {json.dumps(model.where)} DATA"
        )
