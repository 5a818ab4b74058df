"""kinspace serve RUN, or --backbone NAME DATA."""

from __future__ import annotations

from typing import Annotated

import typer

from kinspace.cli.errors import user_errors
from kinspace.cli.options import AllowOutside, Device, GalleryData, ImageBatch
from kinspace.cli.progress import progress
from kinspace.cli.sources import (
    BackboneOption,
    BackboneWeights,
    LabelColumn,
    PathColumn,
    RunOut,
    SkipBadPictures,
    Unlabeled,
    column_names,
    open_run_or_backbone,
)

__all__ = ["serve_command"]

EVERYDAY = ("source", "data", "backbone", "out", "port", "open_browser", "host", "token")


def serve_command(  # noqa: PLR0913 - every option of the command is a parameter
    source: Annotated[
        str,
        typer.Argument(
            metavar="RUN|DATA",
            help="Run folder with a gallery (see kinspace index); with --backbone the pictures.",
        ),
    ],
    data: GalleryData = None,
    *,
    backbone: BackboneOption = None,
    weights: BackboneWeights = None,
    out: RunOut = None,
    unlabeled: Unlabeled = False,
    path_column: PathColumn = None,
    allow_outside: AllowOutside = False,
    label_column: LabelColumn = None,
    skip_bad: SkipBadPictures = False,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8000,
    open_browser: Annotated[
        bool, typer.Option("--open", help="Open the page in a browser.")
    ] = False,
    edit: Annotated[
        bool,
        typer.Option(
            "--edit", help="Let the page add pictures to the gallery and put labels right."
        ),
    ] = False,
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
    queue: Annotated[
        int,
        typer.Option(min=1, help="Maximum number of pictures waiting, half of them of one client."),
    ] = 64,
    batch: ImageBatch = 16,
    device: Device = None,
) -> None:
    """Serve a gallery as a web page with a JSON API.

    A run folder and its gallery are made first with --backbone, of pictures and without training.
    The API is documented at /docs on the server.
    """
    with user_errors(interrupted="stopped"):
        from kinspace.data import load_dataset
        from kinspace.inference import index_run
        from kinspace.server import ServerSettings, serve
        from kinspace.server.server_settings import LOCAL_HOSTS

        settings = ServerSettings(
            token=token,
            hosts=(*LOCAL_HOSTS, *(allow_host or ())),
            max_upload_bytes=upload_mb * 2**20,
            max_pixels=megapixels * 1_000_000,
            queue_size=queue,
            batch_size=batch,
            editable=edit,
        )
        columns = column_names(path_column, label_column)
        with progress() as display:
            run = open_run_or_backbone(
                source,
                display,
                backbone=backbone,
                weights=weights,
                out=out,
                unlabeled=unlabeled,
                columns=columns if backbone is not None else None,
                skip_bad=skip_bad,
                allow_outside=allow_outside,
                device=device,
            )
            pictures = data and load_dataset(
                data,
                labeled=False if unlabeled else None,
                columns=columns,
                allow_outside=allow_outside,
            )
            if backbone is not None:
                display.print(f"run folder: {run.folder}")
                if not run.indexed:
                    index_run(run, device=device)
        serve(
            run.folder,
            pictures,
            address=(host, port),
            settings=settings,
            unprotected=unprotected,
            device=device,
            open_browser=open_browser,
            status=lambda text: typer.echo(text, err=True),
        )
