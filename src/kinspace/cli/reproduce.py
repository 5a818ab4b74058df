"""kinspace reproduce [NAME] [DATA]."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from kinspace.cli.errors import told
from kinspace.cli.options import Cache, Change, Device, Steps, Workers

if TYPE_CHECKING:
    from kinspace.reproduce.runner import Outcome

__all__ = ["reproduce_command"]

Text = str | None
RESULTS = Path("benchmarks/results/reproduce")


def reproduce_command(  # noqa: PLR0913 - every option of the command is a parameter
    name: Annotated[
        str | None, typer.Argument(help="An experiment, or a TOML file of one; none: list them.")
    ] = None,
    data: Annotated[
        str | None, typer.Argument(help="As `kinspace train` takes it: cub200:FOLDER, moths.")
    ] = None,
    weights: Annotated[Text, typer.Option(help="Weights of the backbone, safetensors.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many, from 0 on.")] = 3,
    jobs: Annotated[int, typer.Option(min=1, help="Trainings at the same time.")] = 1,
    only: Annotated[
        list[str] | None, typer.Option(help="A row or sweep by its name; may be repeated.")
    ] = None,
    steps: Steps = None,
    change: Change = None,
    validate: Annotated[
        float | None,
        typer.Option(min=0.0, max=0.9, help="Share of classes held out by second runs; 0: none."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run folders; runs/reproduce/NAME.")] = None,
    results: Annotated[
        Path | None, typer.Option(help="Folder of NAME.json and figures; else with the runs.")
    ] = None,
    device: Device = None,
    cache: Cache = "auto",
    workers: Workers = None,
    commit: Annotated[Text, typer.Option(help="To write down where git is not there.")] = None,
    anew: Annotated[
        bool, typer.Option("--anew", help="Replace what was run with other settings.")
    ] = False,
    discard: Annotated[
        bool, typer.Option("--discard-runs", help="Remove run folders once they are recorded.")
    ] = False,
    page: Annotated[
        Path | None, typer.Option(help="Write this page from the files in --results instead.")
    ] = None,
) -> None:
    """Run a table or figure of a paper, and print it beside the printed numbers.

    What is finished is not run again; what was cut short goes on. Exit code 0: done; 1: some runs
    failed, or the disk; 2: something was asked that cannot be; 130: stopped, and saved.
    """
    with told():
        from kinspace.recipes import parse_set
        from kinspace.reproduce import reproduce, results_page
        from kinspace.reproduce.progress_display import progress_for
        from kinspace.reproduce.training_processes import StoppedRuns

        if page is not None:
            made = results_page(page, results or RESULTS)
            typer.echo(f"written: {made}")
            return
        if name is None:
            show_list()
            return
        changes: dict[str, Any] = dict(parse_set(text) for text in change or [])
        changes |= {} if steps is None else {"schedule.steps": steps}
        try:
            outcome = reproduce(
                name,
                data,
                progress=progress_for(),
                seeds=seeds,
                jobs=jobs,
                weights=weights,
                device=device,
                cache=cache,
                workers=workers,
                out=out,
                results=results,
                only=tuple(only or ()),
                changes=changes,
                validate=validate,
                commit=commit,
                anew=anew,
                keep_runs=not discard,
            )
        except StoppedRuns:
            typer.echo("stopped; the same command goes on", err=True)
            raise typer.Exit(130) from None
    show(outcome)
    if outcome.failures:
        raise typer.Exit(1)


def show_list() -> None:
    """The experiments: name, paper, data set, number of runs with three seeds."""
    from kinspace.reproduce import experiment_names, make_jobs, read_experiment

    table = Table("experiment", "data", box=None, padding=(0, 2, 0, 0))
    table.add_column("runs", justify="right")
    table.add_column("what")
    for name in experiment_names():
        each = read_experiment(name)
        runs = len(make_jobs(each, each.data, range(3)))
        table.add_row(name, each.data, str(runs), f"{each.title}: {each.paper}")
    console = Console()
    console.print(table)
    console.print("runs: with three seeds. kinspace reproduce NAME DATA", highlight=False)


def show(outcome: Outcome) -> None:
    """The table, where the results are, and what failed."""
    from kinspace.reproduce.results_table import headings, lines

    console = Console(soft_wrap=True)
    content = outcome.content
    console.print(f"{content['title']}: {content['paper']}; {content['data']}", markup=False)
    heads = headings(content)
    table = Table("", "", box=None, padding=(0, 2, 0, 0))
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for line in lines(content):
        table.add_row(line.who, line.whose, *line.cells)
    wide = console if console.is_terminal else Console(width=200)
    wide.print(table)
    for path in [outcome.results, *outcome.figures]:
        console.print(f"written: {path}", markup=False, highlight=False)
    for name, why in outcome.failures.items():
        typer.echo(f"failed: {name}: {why}", err=True)
