"""kinspace remove RUN PICTURE ..."""

from __future__ import annotations

from typing import Annotated

import typer

from kinspace.cli.errors import user_errors
from kinspace.cli.options import GalleryClass, GalleryPictures, IndexedRun
from kinspace.cli.progress import print_next

__all__ = ["remove_command"]


def remove_command(
    run: IndexedRun,
    pictures: GalleryPictures = None,
    class_name: GalleryClass = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List what would be removed, and change nothing.")
    ] = False,
) -> None:
    """Remove pictures or a class from a gallery; the files stay where they are."""
    with user_errors():
        from kinspace._core.checks import plural
        from kinspace.search import open_gallery

        gallery = open_gallery(run)
        ids = gallery.find(pictures or (), class_name)
        if not ids:
            raise ValueError("PICTURE: expected pictures to remove, or --class NAME, got none")
        if dry_run:
            for name in ids:
                typer.echo(name)
            return
        count = gallery.remove(ids)
        left = plural(len(gallery.table), "picture")
        typer.echo(f"{run}: removed {plural(count, 'picture')}; it has {left} now")
        print_next(f"kinspace list {run}")
