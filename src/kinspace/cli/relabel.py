"""kinspace relabel RUN CLASS PICTURE ..."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kinspace.cli.errors import user_errors
from kinspace.cli.options import GalleryClass, GalleryPictures, IndexedRun
from kinspace.cli.progress import print_next

__all__ = ["relabel_command"]


def relabel_command(
    run: IndexedRun,
    pictures: GalleryPictures = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="CLASS", help="Class they get, which may be new.")
    ] = None,
    class_name: GalleryClass = None,
    table: Annotated[
        Path | None,
        typer.Option(
            "--table",
            help="CSV with the columns id and suggested, as kinspace label-errors writes it: "
            "each picture gets its suggested class.",
        ),
    ] = None,
) -> None:
    """Give pictures of a gallery another class, or a class another name."""
    with user_errors():
        from kinspace._core.checks import plural
        from kinspace.search import open_gallery
        from kinspace.search.gallery_tables import read_new_classes

        given = pictures or class_name is not None
        if (table is None) != (to is not None and bool(given)):
            raise ValueError(
                "relabel: expected pictures or --class, and --to CLASS; or --table alone"
            )
        gallery = open_gallery(run)
        if table is not None:
            changes = read_new_classes(table)
        else:
            changes = {str(to): gallery.find(pictures or (), class_name)}
        for ids in changes.values():
            gallery.find(ids)  # all are there before any is changed
        count = sum(gallery.relabel(ids, name) for name, ids in changes.items())
        typer.echo(f"{run}: {plural(count, 'picture')} relabeled")
        print_next(f"kinspace list {run}")
