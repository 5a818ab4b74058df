"""kinspace gallery RUN -o FOLDER."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kinspace.cli.errors import told
from kinspace.cli.progress import bar

__all__ = ["gallery_command"]


def gallery_command(
    run: Annotated[Path, typer.Argument(help="A run folder with a gallery (kinspace index).")],
    data: Annotated[
        str | None, typer.Argument(help="Where its pictures are; by default the run's own data.")
    ] = None,
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder.")] = Path("site"),
    k: Annotated[int, typer.Option("-k", min=1, help="Neighbors of each picture.")] = 24,
    device: Annotated[str | None, typer.Option(help="cpu, cuda; else a GPU if any.")] = None,
) -> None:
    """Write the gallery as files: a page to browse and search by click, with no server.

    Exit code 2: something was asked that cannot be.
    """
    with told(), bar("pictures") as progress:
        from kinspace.server import write_site

        page = write_site(
            run,
            out,
            data,
            k=k,
            device=device,
            status=lambda text: typer.echo(text, err=True),
            progress=progress,
        )
    typer.echo(page)
