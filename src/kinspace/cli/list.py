"""kinspace list RUN."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from kinspace.cli.errors import user_errors
from kinspace.cli.options import GalleryClass, IndexedRun, Json
from kinspace.cli.progress import print_next

__all__ = ["list_command"]


def list_command(
    run: IndexedRun,
    class_name: GalleryClass = None,
    pictures: Annotated[
        bool, typer.Option("--pictures", help="List every picture, as CSV: id, class, file.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Write the list of pictures to this CSV.")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the classes of a gallery, or its pictures."""
    with user_errors():
        from kinspace.search import open_gallery
        from kinspace.search.gallery_tables import class_sizes, picture_rows, write_csv

        gallery = open_gallery(run)
        ids = None if class_name is None else gallery.find(class_name=class_name)
        if pictures or out is not None or ids is not None:
            rows = None if ids is None else [gallery.row_of(name) for name in ids]
            found = picture_rows(gallery.table, rows)
            if as_json and out is None:
                typer.echo(json.dumps(found, indent=2, ensure_ascii=False))
            else:
                write_csv(found, out)
            return
        sizes = class_sizes(gallery.table)
        if as_json:
            typer.echo(json.dumps(sizes, indent=2, ensure_ascii=False))
            return
        for name, count in sizes.items():
            typer.echo(f"{count:>8,}  {name}")
        typer.echo(f"{len(gallery.table):>8,}  pictures, searched by {gallery.backend}")
        print_next(f"kinspace search {run} PICTURE")
