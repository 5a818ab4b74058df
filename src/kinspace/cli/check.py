"""kinspace check DATA."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from kinspace.data.dataset import Dataset
from kinspace.data.load import load_dataset
from kinspace.data.validation import CheckResult, check
from kinspace.data.validation_report import check_table

__all__ = ["check_command"]


def check_command(
    data: Annotated[
        str,
        typer.Argument(help="A folder, a table, an archive, NAME:FOLDER, digits or moths."),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
    skip_duplicates: Annotated[
        bool, typer.Option(help="Do not look for pictures that are in several classes.")
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="Processes; by default one, or one a core if that is slow."),
    ] = None,
) -> None:
    """Look at every picture and list what is wrong.

    Exit code 0: nothing is wrong; 1: something is; 2: the data cannot be opened.
    """
    try:
        dataset = load_dataset(data)
    except ValueError as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    result = _watched(dataset, duplicates=not skip_duplicates, workers=workers)
    if as_json:
        typer.echo(result.to_json())
    else:
        Console().print(check_table(result))
    raise typer.Exit(0 if result.ok else 1)


def _watched(dataset: Dataset, *, duplicates: bool, workers: int | None) -> CheckResult:
    """The check, with a bar on the terminal."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("looking at the pictures", total=len(dataset))
        return check(
            dataset,
            duplicates=duplicates,
            workers=workers,
            progress=lambda done, of: bar.update(task, completed=done, total=of),
        )
