"""kinspace benchmark LOSS DATA."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from kinspace.cli.errors import user_errors
from kinspace.cli.options import Cache, Data, Device, Json, Quiet, Seed, Workers

__all__ = ["benchmark_command"]


def benchmark_command(  # noqa: PLR0913 - every option of the command is a parameter
    loss: Annotated[
        str,
        typer.Argument(
            metavar="LOSS",
            help="Python file with a loss (FILE.py:NAME if there are several), or a method's name.",
        ),
    ],
    data: Data,
    against: Annotated[
        str | None,
        typer.Option(help="Methods to compare with: a,b,c or all. Default: ten usual ones."),
    ] = None,
    trials: Annotated[int, typer.Option(min=1, help="Trials of each method.")] = 8,
    seeds: Annotated[int, typer.Option(min=1, help="Final trainings of each method.")] = 5,
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="Steps of a training. Default: 400 frozen, else 2000."),
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(help="Backbone of all methods. Default: by the pictures.")
    ] = None,
    dim: Annotated[
        int | None, typer.Option(min=1, help="Dimensions of all. Default: the recipes' own.")
    ] = None,
    whole_network: Annotated[
        bool | None,
        typer.Option(
            "--whole-network/--frozen",
            help="Train the backbone too. Default: only one without pretrained weights.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder. An existing benchmark is continued."),
    ] = None,
    split: Annotated[
        str, typer.Option(help="auto, random_classes, zero_shot, official or stratified.")
    ] = "auto",
    seed: Seed = 0,
    device: Device = None,
    cache: Cache = "auto",
    workers: Workers = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare a loss of yours with those of kinspace, all under the same budget.

    Each method has the same backbone, classes, number of trials and seeds. The table says whether
    LOSS is above the others beyond chance.
    """

    def status(text: str) -> None:
        if not quiet:
            typer.echo(text, err=True)

    again = "the same command" + (" continues" if out is None else f" --out {out} continues")
    with user_errors(interrupted=f"interrupted; {again}"):
        from kinspace.benchmark import USUAL, benchmark
        from kinspace.benchmark.table import to_markdown

        names = None if against is None else [word.strip() for word in against.split(",")]
        table = benchmark(
            loss,
            data,
            against="all" if names == ["all"] else names or USUAL,
            trials=trials,
            seeds=seeds,
            steps=steps,
            backbone=backbone,
            dim=dim,
            whole_network=whole_network,
            out=out,
            split=split,
            seed=seed,
            device=device,
            cache=cache,
            workers=workers,
            status=status,
        )
    if as_json:
        typer.echo(json.dumps(table.to_dict(), ensure_ascii=False, indent=1))
        return
    typer.echo(to_markdown(table), nl=False)
    typer.echo(table.folder / "benchmark.md")
