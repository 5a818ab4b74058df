"""Starts a server for a run: `kinspace serve`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kinspace.inference import EmbeddingModel, load
from kinspace.server.gallery_map import GalleryMap
from kinspace.server.gallery_thumbnails import Thumbnails
from kinspace.server.server_settings import ServerSettings, settings_for_address

__all__ = ["report_missing_pictures", "serve"]

SHUTDOWN = 10  # seconds for the requests under way


def serve(
    run: EmbeddingModel | str | Path,
    data: Any = None,
    *,
    address: tuple[str, int] = ("127.0.0.1", 8000),
    settings: ServerSettings | None = None,
    unprotected: bool = False,
    device: str | None = None,
    status: Callable[[str], None] = lambda text: None,
) -> None:
    """Serve a run's gallery until interrupted.

    data: the gallery's pictures, if they are not the run's own. address: host and port; one that
    other machines can reach requires a token, unless `unprotected`. status: called with messages
    for the terminal.

    >>> serve("runs/moths-nra-1", status=print)  # doctest: +SKIP
    5,000 pictures at http://127.0.0.1:8000  (stop with Ctrl-C)
    """
    try:
        import uvicorn

        from kinspace.server.app import make_app
        from kinspace.server.connections import limited_protocol
    except ImportError as error:
        raise ValueError(
            f"serve: needs {error.name}; install it with: pip install 'kinspace[serve]'"
        ) from None
    host, port = address
    settings = settings_for_address(settings or ServerSettings(), host, unprotected=unprotected)
    model = run if isinstance(run, EmbeddingModel) else load(run, device)
    thumbnails = Thumbnails(model, data)
    report_missing_pictures(model, thumbnails, command="serve", status=status)
    gallery_map = GalleryMap(model, status)
    app = make_app(model, settings, thumbnails=thumbnails, gallery_map=gallery_map)
    url_host = f"[{host}]" if ":" in host else host
    status(f"{len(model.table):,} pictures at http://{url_host}:{port}  (stop with Ctrl-C)")
    uvicorn.run(
        app,
        host=host,
        port=port,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        http=limited_protocol(settings),
        timeout_graceful_shutdown=SHUTDOWN,
    )


def report_missing_pictures(
    model: EmbeddingModel, thumbnails: Thumbnails, *, command: str, status: Callable[[str], None]
) -> None:
    """Send a message if pictures are missing, with the command that shows them."""
    if thumbnails.missing:
        status(
            f"{thumbnails.missing:,} of {len(thumbnails):,} pictures are not found and shown gray; "
            f"give their folder: kinspace {command} {json.dumps(model.where)} DATA"
        )
