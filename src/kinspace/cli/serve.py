"""kinspace serve RUN."""

from __future__ import annotations

from typing import Annotated

import typer

from kinspace.cli.errors import told
from kinspace.cli.options import Batch, Device, Indexed

__all__ = ["serve_command"]


def serve_command(  # noqa: PLR0913 - every option of the command is a parameter
    run: Indexed,
    data: Annotated[
        str | None, typer.Argument(help="Where its pictures are; by default the run's own data.")
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8000,
    token: Annotated[
        str | None,
        typer.Option(envvar="KINSPACE_TOKEN", help="Asked of everyone; better in the environment."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(help="A name the server may be called by, besides those of this machine."),
    ] = None,
    unprotected: Annotated[
        bool, typer.Option("--unprotected", help="Let other machines in without a token.")
    ] = False,
    upload_mb: Annotated[int, typer.Option(min=1, help="Of a picture, at most.")] = 10,
    megapixels: Annotated[int, typer.Option(min=1, help="Of a picture, at most.")] = 40,
    queue: Annotated[int, typer.Option(min=1, help="Pictures asked about at one time.")] = 32,
    batch: Batch = 16,
    device: Device = None,
) -> None:
    """Open the gallery as a page, with a JSON interface under it (/docs).

    Exit code 2: something was asked that cannot be.
    """
    with told():
        from kinspace.server import Settings, serve
        from kinspace.server.server_settings import LOCAL

        settings = Settings(
            token=token,
            hosts=(*LOCAL, *(allow_host or ())),
            upload_bytes=upload_mb * 2**20,
            pixels=megapixels * 1_000_000,
            queue=queue,
            batch=batch,
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
