"""kinspace serve RUN."""

from __future__ import annotations

from typing import Annotated

import typer

from kinspace.cli.errors import user_errors
from kinspace.cli.options import Device, GalleryData, ImageBatch, IndexedRun

__all__ = ["serve_command"]


def serve_command(  # noqa: PLR0913 - every option of the command is a parameter
    run: IndexedRun,
    data: GalleryData = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8000,
    token: Annotated[
        str | None,
        typer.Option(
            envvar="KINSPACE_TOKEN",
            help="Access token that clients must send. Set it in the environment: command lines "
            "are visible to other users.",
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="Host name to accept besides those of this machine. Repeatable."),
    ] = None,
    unprotected: Annotated[
        bool, typer.Option("--unprotected", help="Allow other machines without a token.")
    ] = False,
    upload_mb: Annotated[
        int, typer.Option(min=1, help="Maximum size of an uploaded file, in MiB.")
    ] = 10,
    megapixels: Annotated[
        int, typer.Option(min=1, help="Maximum size of an uploaded picture.")
    ] = 40,
    queue: Annotated[int, typer.Option(min=1, help="Maximum number of pictures waiting.")] = 32,
    batch: ImageBatch = 16,
    device: Device = None,
) -> None:
    """Serve a gallery as a web page with a JSON API.

    The API is documented at /docs on the server.
    """
    with user_errors(interrupted="stopped"):
        from kinspace.server import ServerSettings, serve
        from kinspace.server.server_settings import LOCAL_HOSTS

        settings = ServerSettings(
            token=token,
            hosts=(*LOCAL_HOSTS, *(allow_host or ())),
            max_upload_bytes=upload_mb * 2**20,
            max_pixels=megapixels * 1_000_000,
            queue_size=queue,
            batch_size=batch,
        )
        serve(
            run,
            data,
            address=(host, port),
            settings=settings,
            unprotected=unprotected,
            device=device,
            status=lambda text: typer.echo(text, err=True),
        )
