"""kinspace reproduce [NAME] [DATA]."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from kinspace.cli.errors import user_errors
from kinspace.cli.options import Cache, Device, Overrides, Steps, Workers, overrides

if TYPE_CHECKING:
    from kinspace.reproduce import Outcome

__all__ = ["reproduce_command"]

EVERYDAY = ("name", "data", "seeds", "steps", "out", "page")

Text = str | None
RESULTS = Path("benchmarks/results/reproduce")


def reproduce_command(  # noqa: PLR0913 - every option of the command is a parameter
    name: Annotated[
        Text, typer.Argument(metavar="NAME", help="Experiment or its TOML file. Default: list all.")
    ] = None,
    data: Annotated[
        Text,
        typer.Argument(
            metavar="DATA", help="Data set, as for kinspace train: cub200:FOLDER, moths."
        ),
    ] = None,
    weights: Annotated[Text, typer.Option(help="Backbone weights, a safetensors file.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Number of seeds, from 0 on.")] = 3,
    jobs: Annotated[int, typer.Option(min=1, help="Number of trainings run in parallel.")] = 1,
    only: Annotated[
        list[str] | None, typer.Option(help="Run this row or sweep only. Repeatable.")
    ] = None,
    steps: Steps = None,
    changes: Overrides = None,
    validate: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=0.9,
            help="Share of the classes that a second run of each row holds out for validation. "
            "0: no such runs.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the runs. Default: runs/reproduce/NAME.")
    ] = None,
    results: Annotated[
        Path | None, typer.Option(help="Folder of NAME.json and figures. Default: that of --out.")
    ] = None,
    device: Device = None,
    cache: Cache = "auto",
    workers: Workers = None,
    commit: Annotated[Text, typer.Option(help="Commit to record. Default: git's HEAD.")] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace runs made with other settings.")
    ] = False,
    delete_runs: Annotated[
        bool, typer.Option("--delete-runs", help="Delete each run folder once it is recorded.")
    ] = False,
    page: Annotated[
        Path | None,
        typer.Option(help="Run nothing; write this Markdown page from the files in --results."),
    ] = None,
) -> None:
    """Reproduce a table or figure of a paper.

    Prints the measured numbers next to those of the paper. Finished runs are not repeated, and
    interrupted runs continue.
    """
    with user_errors(interrupted="interrupted; the same command continues"):
        from kinspace.reproduce import list_experiments, reproduce, results_page
        from kinspace.reproduce.progress_display import progress_display

        if page is not None:
            typer.echo(f"written: {results_page(page, results or RESULTS)}")
            return
        if name is None:
            print_experiments(list_experiments())
            return
        outcome = reproduce(
            name,
            data,
            progress=progress_display(),
            seeds=seeds,
            jobs=jobs,
            weights=weights,
            device=device,
            cache=cache,
            workers=workers,
            out=out,
            results=results,
            only=tuple(only or ()),
            changes=overrides(changes, steps),
            validate=validate,
            commit=commit,
            overwrite=overwrite,
            keep_runs=not delete_runs,
        )
    print_outcome(outcome)
    if outcome.failures:
        raise typer.Exit(1)


def print_experiments(rows: list[dict[str, str]]) -> None:
    """Print the list of experiments."""
    table = Table("experiment", "data", box=None, padding=(0, 2, 0, 0))
    table.add_column("runs", justify="right")
    table.add_column("what")
    for row in rows:
        table.add_row(row["name"], row["data"], row["runs"], row["title"])
    console = Console()
    console.print(table)
    console.print("runs: with three seeds. kinspace reproduce NAME DATA", highlight=False)


def print_outcome(outcome: Outcome) -> None:
    """Print the results table, the files written and the failed runs."""
    from kinspace.reproduce.results_table import headings, table_lines

    console = Console(soft_wrap=True)
    content = outcome.content
    console.print(f"{content['title']}: {content['paper']}; {content['data']}", markup=False)
    table = Table("", "", box=None, padding=(0, 2, 0, 0))
    for head in headings(content):
        table.add_column(head, justify="right", no_wrap=True)
    for line in table_lines(content):
        table.add_row(line.row, line.source, *line.cells)
    wide = console if console.is_terminal else Console(width=200)
    wide.print(table)
    for path in [outcome.results, *outcome.figures]:
        console.print(f"written: {path}", markup=False, highlight=False)
    for name, why in outcome.failures.items():
        typer.echo(f"failed: {name}: {why}", err=True)
