"""kinspace tune DATA."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from kinspace.cli.errors import told
from kinspace.recipes import changed, parse_set, read_recipe
from kinspace.training import Search, parse_range, tune
from kinspace.training.building import with_batch
from kinspace.training.loop import Stopped
from kinspace.training.settings import main_process

__all__ = ["tune_command"]

Text = str | None
Whole = int | None


def tune_command(  # noqa: PLR0913 - every option of the command is a parameter
    data: Annotated[
        str, typer.Argument(help="A folder, a table, an archive, NAME:FOLDER, digits or moths.")
    ],
    method: Annotated[
        str, typer.Option(help="A method (kinspace methods lists them) or a recipe file.")
    ] = "magnet",
    trials: Annotated[int, typer.Option(min=1, help="How many trainings, all in all.")] = 20,
    sampler: Annotated[str, typer.Option(help="random, or optuna (extra tune).")] = "random",
    ranges: Annotated[
        list[str] | None,
        typer.Option(
            "--range",
            help="KEY=LOW:HIGH, KEY=LOW:HIGH:log or KEY=a,b,c beside the recipe's; repeatable.",
        ),
    ] = None,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", help="KEY=VALUE of the recipe, loss.beta=2; may be repeated."),
    ] = None,
    steps: Annotated[Whole, typer.Option(min=1, help="How long each.")] = None,
    batch: Annotated[Whole, typer.Option(min=2, help="Samples a step.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="The folder of the search; the same one goes on.")
    ] = None,
    split: Annotated[
        Text, typer.Option(help="zero_shot, official, stratified or all; else the recipe's.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of everything that is drawn.")] = 0,
    device: Annotated[Text, typer.Option(help="cpu, cuda, cuda:1; else a GPU if any.")] = None,
    precision: Annotated[Text, typer.Option(help="float32, bf16 or fp16.")] = None,
    cache: Annotated[
        str, typer.Option(help="Decoded pictures: auto, memory, gpu, none, or a folder.")
    ] = "auto",
    workers: Annotated[Whole, typer.Option(min=0, help="Processes that read pictures.")] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Go on without pictures that cannot be read.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing on the way.")] = False,
) -> None:
    """Try values for a recipe's options; the best by Recall@1 on validation classes.

    The test part is not looked at. Exit code 0: done; 1: it went wrong; 2: something was asked that
    cannot be; 130: stopped by Ctrl-C, and the same command goes on.
    """
    with told():
        recipe = read_recipe(method)
        asked: dict[str, Any] = dict(parse_set(text) for text in change or [])
        recipe = changed(recipe, asked) if asked else recipe
        recipe = changed(recipe, {"schedule.steps": steps}) if steps else recipe
        recipe = with_batch(recipe, batch) if batch else recipe
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
    if main_process() and not quiet:
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
