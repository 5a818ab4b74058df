"""kinspace tune DATA."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from kinspace.cli.errors import told
from kinspace.cli.options import (
    Cache,
    Change,
    Data,
    Device,
    Method,
    Precision,
    Quiet,
    Samples,
    Seed,
    SkipBad,
    Split,
    Steps,
    Workers,
)
from kinspace.cli.recipe import with_options
from kinspace.distributed import is_main_process
from kinspace.recipes import read_recipe
from kinspace.training import Search, parse_range, tune
from kinspace.training.loop import Stopped

__all__ = ["tune_command"]


def tune_command(  # noqa: PLR0913 - every option of the command is a parameter
    data: Data,
    method: Method = "magnet",
    trials: Annotated[int, typer.Option(min=1, help="How many trainings, all in all.")] = 20,
    sampler: Annotated[str, typer.Option(help="random, or optuna (extra tune).")] = "random",
    ranges: Annotated[
        list[str] | None,
        typer.Option(
            "--range",
            help="KEY=LOW:HIGH, KEY=LOW:HIGH:log or KEY=a,b,c beside the recipe's; repeatable.",
        ),
    ] = None,
    change: Change = None,
    steps: Steps = None,
    batch: Samples = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder of the search; the same one goes on.")
    ] = None,
    split: Split = None,
    seed: Seed = 0,
    device: Device = None,
    precision: Precision = None,
    cache: Cache = "auto",
    workers: Workers = None,
    skip_bad: SkipBad = False,
    quiet: Quiet = False,
) -> None:
    """Try values for a recipe's options; the best by Recall@1 on validation classes.

    The test part is not looked at. Exit code 0: done; 1: it went wrong; 2: something was asked that
    cannot be; 130: stopped by Ctrl-C, and the same command goes on.
    """
    with told():
        recipe = with_options(read_recipe(method), change, steps, batch)
        try:
            search = tune(
                data,
                method=recipe,
                trials=trials,
                sampler=sampler,
                ranges=dict(parse_range(text) for text in ranges or []),
                out=out,
                split=split,
                seed=seed,
                device=device,
                precision=precision,
                cache=cache,
                workers=workers,
                skip_bad=skip_bad,
                quiet=quiet,
            )
        except Stopped:
            where = "" if out is None else f" --out {out}"
            typer.echo(f"stopped; the same command{where} goes on", err=True)
            raise typer.Exit(130) from None
    if is_main_process() and not quiet:
        show(search)


def show(search: Search) -> None:
    """The trials as a table, the best first."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    keys = list(search.trials[0]["values"])
    for name in ("trial", "Recall@1", *keys):
        table.add_column(name, justify="right")
    for row in sorted(search.trials, key=lambda row: -row.get("recall@1", -1.0)):
        recall = f"{row['recall@1']:.1%}" if row["state"] == "done" else "failed"
        values = (row["values"][key] for key in keys)
        cells = (f"{v:.3g}" if isinstance(v, float) else str(v) for v in values)
        table.add_row(str(row["trial"] + 1), recall, *cells)
    console = Console()
    console.print(table)
    best = search.folder / "best.toml"
    said = f"the best recipe: {best}; kinspace train DATA --method {best}"
    console.print(said, markup=False, highlight=False, soft_wrap=True)
