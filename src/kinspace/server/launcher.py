"""From a run folder to a server that runs: `kinspace serve`."""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from kinspace.inference import Model, load
from kinspace.server.gallery_thumbnails import Thumbnails
from kinspace.server.map_file import Drawing
from kinspace.server.server_settings import LOCAL, Settings

__all__ = ["missing_pictures", "serve"]

CONNECTIONS = 256  # at one time, pages and uploads together


def serve(
    run: Model | str | Path,
    data: Any = None,
    *,
    address: tuple[str, int] = ("127.0.0.1", 8000),
    settings: Settings | None = None,
    unprotected: bool = False,
    device: str | None = None,
    status: Callable[[str], None] = lambda text: None,
) -> None:
    """Serve a run's gallery until interrupted.

    data: where the gallery's pictures are, if it is not made of the run's own. address: host and
    port; one that other machines reach asks for a token, unless `unprotected`. status: gets lines
    for the terminal.
    """
    try:
        import uvicorn

        from kinspace.server.app import make_app
    except ImportError as error:
        raise ValueError(
            f"serve: needs {error.name}; install it with: pip install 'kinspace[serve]'"
        ) from None
    host, port = address
    settings = _for_host(settings or Settings(), host, unprotected)
    model = run if isinstance(run, Model) else load(run, device)
    thumbnails = Thumbnails(model, data)
    missing_pictures(model, thumbnails, "serve", status)
    app = make_app(model, settings, thumbnails=thumbnails, drawing=Drawing(model, status))
    shown = f"[{host}]" if ":" in host else host
    status(f"{len(model.table):,} pictures at http://{shown}:{port}  (Ctrl-C ends)")
    uvicorn.run(
        app,
        host=host,
        port=port,
        log_level="warning",
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS,
    )


def _for_host(settings: Settings, host: str, unprotected: bool) -> Settings:
    """The settings for an address: any name may be used where other machines reach it."""
    if is_local(host):
        return settings
    if settings.token is None and not unprotected:
        raise ValueError(
            f"host: {host} can be reached from other machines; give a token (the environment "
            "variable KINSPACE_TOKEN), or allow everyone with --unprotected"
        )
    return replace(settings, hosts=None) if settings.hosts == LOCAL else settings


def is_local(host: str) -> bool:
    """Whether an address is of this machine alone.

    >>> is_local("127.0.0.1"), is_local("localhost"), is_local("0.0.0.0"), is_local("box.lan")
    (True, True, False, False)
    """
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def missing_pictures(
    model: Model, thumbnails: Thumbnails, command: str, status: Callable[[str], None]
) -> None:
    """Say that pictures are not where they were, and how to show them."""
    if thumbnails.missing:
        status(
            f"{thumbnails.missing:,} of {len(thumbnails):,} pictures are not found and shown gray; "
            f"say where they are: kinspace {command} {json.dumps(str(model.folder))} DATA"
        )
