"""kinspace hierarchy DATA."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from kinspace.cli.errors import told
from kinspace.cli.options import (
    Baselines,
    Cache,
    Change,
    Data,
    Device,
    Json,
    Method,
    Seed,
    Steps,
    Workers,
)

__all__ = ["hierarchy_command"]


def hierarchy_command(  # noqa: PLR0913 - every option of the command is a parameter
    data: Data,
    method: Method = "magnet",
    change: Change = None,
    steps: Steps = None,
    split: Annotated[str, typer.Option(help="stratified or official.")] = "stratified",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The run folder.")] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in --out, as it was begun.")
    ] = False,
    seed: Seed = 0,
    device: Device = None,
    cache: Cache = "auto",
    workers: Workers = None,
    baselines: Baselines = True,
    as_json: Json = False,
) -> None:
    """Merge classes in random pairs, train on these, and judge on the true classes.

    Exit code 0: done; 1: the disk failed; 2: something was asked that cannot be; 130: stopped by
    Ctrl-C, and saved.
    """
    with told():
        from kinspace.evaluation.hierarchy_experiment import recover_hierarchy
        from kinspace.recipes import parse_set
        from kinspace.training.loop import Stopped

        changes = dict(parse_set(text) for text in change or [])
        if steps is not None:
            changes["schedule.steps"] = steps
        try:
            found = recover_hierarchy(
                data,
                method=method,
                changes=changes,
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
        except Stopped:
            folder = "the run folder" if out is None else out
            again = f"hierarchy: goes on with the same command, --out {folder} and --resume"
            typer.echo(again, err=True)
            raise typer.Exit(130) from None
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False, indent=1))
    else:
        show(found)


def show(found: dict[str, Any]) -> None:
    """The errors as a table."""
    table = Table("error, %", box=None, padding=(0, 2, 0, 0))
    for name in ("true, kNN", "true, mean", "merged, kNN", "merged, mean"):
        table.add_column(name, justify="right")
    words = {"model": found["method"], "untrained": "untrained", "pixels": "raw pixels"}
    for name, errors in found["errors"].items():
        cells = [errors[on][by] for on in ("true", "merged") for by in ("knn", "nearest_mean")]
        table.add_row(words[name], *(f"{100 * cell:.1f}" for cell in cells))
    console = Console()
    said = (
        f"{found['data']}: trained on {len(found['merged_classes']):,} classes merged of the "
        f"{found['classes']:,} true ones; {found['judged']:,} test pictures named by "
        f"{found['known']:,} training pictures"
    )
    for text in (said, table, f"run folder: {found['run']}"):
        console.print(text, markup=False, highlight=False, soft_wrap=isinstance(text, str))
