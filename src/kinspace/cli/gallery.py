"""kinspace gallery RUN -o FOLDER."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kinspace.cli.errors import user_errors
from kinspace.cli.options import AllowOutside, Device, GalleryData, IndexedRun
from kinspace.cli.progress import print_next, progress
from kinspace.cli.sources import trusted

__all__ = ["gallery_command"]


def gallery_command(
    run: IndexedRun,
    data: GalleryData = None,
    allow_outside: AllowOutside = False,
    out: Annotated[Path, typer.Option("--out", "-o", help="Output folder.")] = Path("site"),
    replace: Annotated[
        bool, typer.Option("--replace", help="Write over the page that is in the output folder.")
    ] = False,
    k: Annotated[int, typer.Option("-k", min=1, help="Neighbors of each picture.")] = 24,
    device: Device = None,
) -> None:
    """Write a gallery as a static web page that needs no server.

    The page shows the map and the neighbors of every picture. It cannot search with a new picture.
    """
    with user_errors(), progress("pictures") as display:
        from kinspace.server import write_site

        page = write_site(
            run,
            out,
            trusted(data, allow_outside=allow_outside),
            replace=replace,
            k=k,
            device=device,
            status=display.print,
            progress=display.count,
        )
    typer.echo(page)
    print_next(f"open {page} in a browser")
