"""kinspace duplicates RUN|DATA."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kinspace.cli.errors import user_errors
from kinspace.cli.options import AllowOutside, CsvOut, GalleryData
from kinspace.cli.progress import print_next, progress
from kinspace.cli.sources import LabelColumn, PathColumn, Unlabeled, column_names

__all__ = ["duplicates_command"]


def duplicates_command(  # noqa: PLR0913 - every option of the command is a parameter
    source: Annotated[
        str,
        typer.Argument(metavar="RUN|DATA", help="Run folder with a gallery, or pictures alone."),
    ],
    data: GalleryData = None,
    out: CsvOut = None,
    *,
    unlabeled: Unlabeled = False,
    path_column: PathColumn = None,
    allow_outside: AllowOutside = False,
    label_column: LabelColumn = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Number of processes. Default: by the machine.")
    ] = None,
) -> None:
    """List pictures that are copies of each other, as CSV.

    Copies are the same pixels, resized, encoded again or lighter; in a gallery, whose embeddings
    are there, also mirrored and turned ones. Cropped pictures are not found.
    """
    with user_errors():
        from kinspace._core.checks import plural
        from kinspace.data import load_dataset
        from kinspace.inference.gallery_problems import (
            DUPLICATES,
            gallery_duplicates,
            picture_duplicates,
        )
        from kinspace.search.gallery_tables import write_csv

        columns = column_names(path_column, label_column)
        labeled = False if unlabeled else None
        with progress("reading the pictures") as display:
            if (Path(source) / "run.json").exists():
                pictures = data and load_dataset(
                    data, labeled=labeled, columns=columns, allow_outside=allow_outside
                )
                rows = gallery_duplicates(source, pictures, workers=workers, progress=display.count)
            elif data is not None:
                raise ValueError(f"RUN: expected a run folder before DATA, got {source}")
            else:
                dataset = load_dataset(
                    source, labeled=labeled, columns=columns, allow_outside=allow_outside
                )
                rows = picture_duplicates(dataset, workers=workers, progress=display.count)
        write_csv(rows, out, DUPLICATES)
        typer.echo(f"{plural(len(rows), 'pair')} of copies", err=True)
        if rows and (Path(source) / "run.json").exists():
            print_next(f"kinspace remove {source} PICTURE ... for what the gallery has twice")
