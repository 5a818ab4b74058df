"""kinspace hierarchy DATA."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from kinspace.cli.errors import user_errors
from kinspace.cli.options import (
    AllowOutside,
    Baselines,
    Cache,
    Data,
    Device,
    Json,
    Method,
    Overrides,
    Seed,
    Steps,
    Workers,
    overrides,
)
from kinspace.cli.sources import trusted

__all__ = ["hierarchy_command"]


def hierarchy_command(  # noqa: PLR0913 - every option of the command is a parameter
    data: Data,
    method: Method = "magnet",
    changes: Overrides = None,
    steps: Steps = None,
    split: Annotated[str, typer.Option(help="stratified or official.")] = "stratified",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Run folder.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in the folder --out.")
    ] = False,
    seed: Seed = 0,
    device: Device = None,
    cache: Cache = "auto",
    workers: Workers = None,
    allow_outside: AllowOutside = False,
    baselines: Baselines = True,
    as_json: Json = False,
) -> None:
    """Train on randomly merged classes and evaluate on the true classes.

    The experiment of section 4.3 of the Magnet loss paper: how much of the structure within a
    merged class does the embedding recover?
    """
    again = "interrupted; to continue, run the same command with --resume and --out RUN"
    with user_errors(interrupted=again):
        from kinspace.evaluation.hierarchy_recovery import recover_hierarchy

        found = recover_hierarchy(
            trusted(data, allow_outside=allow_outside),
            method=method,
            changes=overrides(changes, steps),
            out=out,
            resume=resume,
            status=lambda text: None if as_json else typer.echo(text, err=True),
            seed=seed,
            split=split,
            device=device,
            cache=cache,
            workers=workers,
            baselines=baselines,
            quiet=as_json,
        )
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False, indent=1))
    else:
        print_errors(found)


def print_errors(found: dict[str, Any]) -> None:
    """Print the classification errors as a table."""
    table = Table("error, %", box=None, padding=(0, 2, 0, 0))
    for name in ("true, kNN", "true, mean", "merged, kNN", "merged, mean"):
        table.add_column(name, justify="right")
    words = {"model": found["method"], "untrained": "untrained", "pixels": "raw pixels"}
    for name, errors in found["errors"].items():
        cells = [errors[on][by] for on in ("true", "merged") for by in ("knn", "nearest_mean")]
        table.add_row(words[name], *(f"{100 * cell:.1f}" for cell in cells))
    console = Console()
    title = (
        f"{found['data']}: trained on {len(found['merged_classes']):,} merged classes, made of "
        f"{found['classes']:,} true classes; {found['test_pictures']:,} test pictures classified "
        f"by {found['train_pictures']:,} training pictures"
    )
    for text in (title, table, f"run folder: {found['run']}"):
        console.print(text, markup=False, highlight=False, soft_wrap=isinstance(text, str))
