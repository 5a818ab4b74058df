"""kinspace hierarchy DATA."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from kinspace.cli.errors import told

__all__ = ["hierarchy_command"]

Text = str | None


def hierarchy_command(  # noqa: PLR0913 - every option of the command is a parameter
    data: Annotated[
        str,
        typer.Argument(help="A folder, a table, an archive, NAME:FOLDER, digits or moths."),
    ],
    method: Annotated[
        str, typer.Option(help="A method (kinspace methods lists them) or a recipe file.")
    ] = "magnet",
    change: Annotated[
        list[str] | None,
        typer.Option("--set", help="KEY=VALUE of the recipe, loss.alpha=2; may be repeated."),
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="How long.")] = None,
    split: Annotated[str, typer.Option(help="stratified or official.")] = "stratified",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The run folder.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of everything that is drawn.")] = 0,
    device: Annotated[Text, typer.Option(help="cpu, cuda, cuda:1; else a GPU if any.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Merge classes in random pairs, train on these, and judge on the true classes.

    Exit code 0: done; 1: it went wrong; 2: something was asked that cannot be.
    """
    with told():
        from kinspace.recipes import parse_set
        from kinspace.report.recovering import recover_hierarchy

        changes = dict(parse_set(text) for text in change or [])
        if steps is not None:
            changes["schedule.steps"] = steps
        found = recover_hierarchy(
            data,
            method=method,
            changes=changes,
            out=out,
            seed=seed,
            split=split,
            device=device,
            quiet=as_json,
        )
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False, indent=1))
        return
    table = Table("error, %", box=None, padding=(0, 2, 0, 0))
    for name in ("true, kNN", "true, mean", "merged, kNN", "merged, mean"):
        table.add_column(name, justify="right")
    words = {"model": found["method"], "untrained": "untrained", "pixels": "raw pixels"}
    for name, errors in found["errors"].items():
        cells = [errors[on][by] for on in ("true", "merged") for by in ("knn", "nearest_mean")]
        table.add_row(words[name], *(f"{100 * cell:.1f}" for cell in cells))
    console = Console()
    console.print(table)
    console.print(f"run folder: {found['run']}", markup=False, highlight=False, soft_wrap=True)
