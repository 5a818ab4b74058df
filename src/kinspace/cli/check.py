"""kinspace check DATA."""

from __future__ import annotations

from typing import Annotated

import typer

from kinspace.cli.errors import user_errors
from kinspace.cli.options import AllowOutside, Data, Json
from kinspace.cli.progress import print_next, progress
from kinspace.cli.sources import LabelColumn, PathColumn, column_names
from kinspace.cli.tables import print_whole

__all__ = ["check_command"]


def check_command(
    data: Data,
    as_json: Json = False,
    path_column: PathColumn = None,
    allow_outside: AllowOutside = False,
    label_column: LabelColumn = None,
    skip_duplicates: Annotated[
        bool, typer.Option("--skip-duplicates", help="Do not search for duplicates across classes.")
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, help="Number of processes. Default: one, or one per core for large sets."
        ),
    ] = None,
) -> None:
    """Check every picture of a data set and list the problems.

    The exit code is 1 if there are problems.
    """
    with user_errors(), progress("checking pictures") as display:
        from kinspace.data import load_dataset
        from kinspace.data.validation import check

        dataset = load_dataset(
            data, columns=column_names(path_column, label_column), allow_outside=allow_outside
        )
        result = check(
            dataset,
            duplicates=not skip_duplicates,
            workers=workers,
            progress=display.count,
        )
    if as_json:
        typer.echo(result.to_json())
    else:
        from kinspace.data.validation_report import check_table
        from kinspace.models.backbones import DEFAULT_BACKBONE

        print_whole(check_table(result))
        trains = dataset.labeled and not result.training
        use = f"train {data}" if trains else f"serve {data} --backbone {DEFAULT_BACKBONE}"
        print_next(f"kinspace {use}" + (" --skip-bad" if result.bad else ""))
    raise typer.Exit(0 if result.ok else 1)
