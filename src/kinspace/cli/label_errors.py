"""kinspace label-errors RUN|TABLE."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kinspace.cli.errors import user_errors
from kinspace.cli.options import CsvOut, Source
from kinspace.cli.progress import print_next

__all__ = ["label_errors_command"]


def label_errors_command(
    source: Source,
    out: CsvOut = None,
    k: Annotated[int, typer.Option("-k", min=2, help="Neighbors of each picture.")] = 10,
    at_least: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=1.0,
            help="List where the other class has this much more of the neighbors than the own.",
        ),
    ] = 0.5,
) -> None:
    """List pictures whose class looks wrong, with the class they look like, as CSV.

    Of the gallery of a run, or of a table. Rows that are right can be deleted from the CSV; the
    rest is put right by kinspace relabel RUN --table CSV.
    """
    with user_errors():
        from kinspace._core.checks import plural
        from kinspace.embeddings import EmbeddingTable
        from kinspace.inference.gallery_problems import LABEL_ERRORS, label_errors
        from kinspace.search import open_gallery
        from kinspace.search.gallery_tables import write_csv

        folder = Path(source).is_dir()
        table = open_gallery(source).table if folder else EmbeddingTable.load(source)
        rows = label_errors(table, k=k, at_least=at_least)
        write_csv(rows, out, LABEL_ERRORS)
        of = plural(len(table), "picture")
        typer.echo(f"{plural(len(rows), 'label')} of {of} may be wrong", err=True)
        if out is not None and rows and folder:
            print_next(f"kinspace relabel {source} --table {out}")
