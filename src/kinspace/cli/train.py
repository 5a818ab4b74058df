"""kinspace train DATA."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from kinspace.cli.errors import told
from kinspace.cli.options import (
    DATA,
    Baselines,
    Cache,
    Change,
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
from kinspace.recipes import Recipe, read_recipe, with_loss, with_regularizers
from kinspace.run import Run, open_run
from kinspace.training import train
from kinspace.training.loop import Stopped

__all__ = ["train_command"]

Text = str | None


def train_command(  # noqa: PLR0913 - every option of the command is a parameter
    data: Annotated[str | None, typer.Argument(help=DATA)] = None,
    method: Method = "nra",
    loss: Annotated[Text, typer.Option(help="Another loss in the recipe.")] = None,
    regularizer: Annotated[
        list[str] | None,
        typer.Option(help="NAME:WEIGHT, in place of the recipe's; may be given several times."),
    ] = None,
    change: Change = None,
    backbone: Annotated[Text, typer.Option(help="small, googlenet, or a name of timm's.")] = None,
    weights: Annotated[Text, typer.Option(help="Weights of the backbone, safetensors.")] = None,
    steps: Steps = None,
    batch: Samples = None,
    micro_batch: Annotated[
        int | None, typer.Option(min=1, help="Samples through the model at a time; same gradient.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this folder.")] = None,
    split: Split = None,
    seed: Seed = 0,
    device: Device = None,
    precision: Precision = None,
    cache: Cache = "auto",
    workers: Workers = None,
    save: Annotated[
        int, typer.Option("--save-every", min=1, help="Steps between checkpoints.")
    ] = 200,
    log: Annotated[
        int, typer.Option("--log-every", min=1, help="Steps between rows of metrics.")
    ] = 10,
    skip_bad: SkipBad = False,
    baselines: Baselines = True,
    compiled: Annotated[bool, typer.Option("--compile", help="Through torch.compile.")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Log for it too.")] = False,
    quiet: Quiet = False,
) -> None:
    """Train a model on labeled pictures and judge it on classes it has not seen.

    Exit code 0: done; 1: the disk failed; 2: something was asked that cannot be, or the loss is no
    number any more; 130: stopped by Ctrl-C, and saved.
    """
    with told():
        if resume is not None:
            fixed: dict[str, Any] = {"--loss": loss, "--regularizer": regularizer, "--set": change}
            fixed |= {"--backbone": backbone, "--weights": weights, "--steps": steps}
            fixed |= {"--batch": batch, "--micro-batch": micro_batch, "--out": out}
            _refuse_changes(fixed | {"--split": split, "--precision": precision})
            run = _resumed(resume, data, device=device, workers=workers, quiet=quiet)
        else:
            if data is None:
                raise ValueError("DATA: expected a folder, a table, an archive or a name")
            recipe = read_recipe(method)
            recipe = with_loss(recipe, loss) if loss else recipe
            recipe = with_regularizers(recipe, regularizer) if regularizer else recipe
            model = {"model.backbone": backbone, "model.weights": weights}
            recipe = with_options(recipe, change, steps, batch, model)
            run = _trained(
                data,
                recipe,
                out=out,
                micro_batch=micro_batch,
                split=split,
                seed=seed,
                device=device,
                precision=precision,
                cache=cache,
                workers=workers,
                save=save,
                log=log,
                skip_bad=skip_bad,
                baselines=baselines,
                compile=compiled,
                tensorboard=tensorboard,
                quiet=quiet,
            )
    if is_main_process() and not quiet:
        show(run)


def _refuse_changes(options: dict[str, Any]) -> None:
    if given := [name for name, value in options.items() if value is not None]:
        raise ValueError(
            f"--resume: goes on with the run as it was begun, got {', '.join(given)} too; leave "
            "that out, or begin a new run"
        )


def _trained(data: str, recipe: Recipe, **options: Any) -> Run:
    try:
        return train(data, method=recipe, **options)
    except Stopped:
        raise typer.Exit(130) from None


def _resumed(folder: Path, data: str | None, **options: Any) -> Run:
    about = open_run(folder).about
    before = about["settings"] | {name: v for name, v in options.items() if v is not None}
    recipe = Recipe.from_dict(about["recipe"])
    return _trained(data or about["data"], recipe, out=folder, resume=True, **before)


def show(run: Run) -> None:
    """The verdict as a table."""
    results = run.results
    table = Table(box=None, padding=(0, 2, 0, 0))
    measures = [name for name in results.get("selected", {}) if name.startswith("recall@")]
    table.add_column("test part")
    for name in measures:
        table.add_column(name.replace("recall", "Recall"), justify="right")
    table.add_column("mAP", justify="right")
    words = {
        "pixels": "raw pixels",
        "untrained": "untrained backbone",
        "final": "last step",
    }
    if "validation_recall@1" in results:
        words["selected"] = f"chosen on validation (step {results['selected_step']})"
    for name, said in words.items():
        if name in results:
            row = results[name]
            cells = [f"{row[measure]:.1%}" for measure in measures]
            table.add_row(said, *cells, f"{row['map']:.1%}")
    console = Console()
    if measures:
        console.print(table)
    console.print(f"run folder: {run.folder}", markup=False, highlight=False, soft_wrap=True)
