"""kinspace tune DATA."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from kinspace.cli.errors import user_errors
from kinspace.cli.options import (
    AllowOutside,
    BatchSize,
    Cache,
    Data,
    Device,
    Method,
    Overrides,
    Precision,
    Quiet,
    Seed,
    SkipBad,
    Split,
    Steps,
    Workers,
    overrides,
    recipe_from_options,
)
from kinspace.cli.progress import print_next
from kinspace.cli.tables import print_whole

if TYPE_CHECKING:
    from kinspace.training import TuneResult

__all__ = ["tune_command"]

EVERYDAY = ("data", "method", "trials", "ranges", "out", "device", "quiet")


def tune_command(  # noqa: PLR0913 - every option of the command is a parameter
    data: Data,
    method: Method = "magnet",
    trials: Annotated[int, typer.Option(min=1, help="Number of trainings in total.")] = 20,
    sampler: Annotated[
        str, typer.Option(help="random, or tpe: learns from earlier trials.")
    ] = "random",
    ranges: Annotated[
        list[str] | None,
        typer.Option(
            "--range",
            help="Range to search, besides the recipe's: KEY=LOW:HIGH, KEY=LOW:HIGH:log or "
            "KEY=a,b,c. Repeatable.",
        ),
    ] = None,
    changes: Overrides = None,
    steps: Steps = None,
    batch: BatchSize = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the study. An existing study is continued.")
    ] = None,
    split: Split = None,
    seed: Seed = 0,
    device: Device = None,
    precision: Precision = None,
    cache: Cache = "auto",
    workers: Workers = None,
    skip_bad: SkipBad = False,
    allow_outside: AllowOutside = False,
    quiet: Quiet = False,
) -> None:
    """Search for the best values of a recipe's options.

    Trials are ranked by Recall@1 on the validation classes. The test part is not used. Needs Optuna
    (the extra tune). Several processes can share a folder.
    """
    again = "the same command" + (" continues" if out is None else f" --out {out} continues")
    with user_errors(interrupted=f"interrupted; {again}"):
        from kinspace.distributed import is_main_process
        from kinspace.training import parse_range, tune

        result = tune(
            data,
            method=recipe_from_options(method, overrides(changes, steps), batch=batch),
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
            allow_outside=allow_outside,
            quiet=quiet,
        )
    if is_main_process() and not quiet:
        print_trials(result)


def print_trials(result: TuneResult) -> None:
    """Print the trials as a table, the best first."""
    table = Table(box=None, padding=(0, 2, 0, 0))
    keys = list(result.trials[0]["values"])
    for name in ("trial", "Recall@1", *keys):
        table.add_column(name, justify="right")
    for row in sorted(result.trials, key=lambda row: -row.get("recall@1", -1.0)):
        recall = f"{row['recall@1']:.1%}" if row["state"] == "done" else "failed"
        values = (row["values"][key] for key in keys)
        cells = (f"{v:.3g}" if isinstance(v, float) else str(v) for v in values)
        table.add_row(str(row["trial"] + 1), recall, *cells)
    console = Console()
    print_whole(table)
    best = result.folder / "best.toml"
    console.print(f"best recipe: {best}", markup=False, highlight=False, soft_wrap=True)
    print_next(f"kinspace train DATA --method {best}")
