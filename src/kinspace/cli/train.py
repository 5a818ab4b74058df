"""kinspace train DATA."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from kinspace.cli.errors import told
from kinspace.recipes import Recipe, changed, parse_set, read_recipe, with_loss, with_regularizers
from kinspace.training import Run, open_run, train
from kinspace.training.building import with_batch
from kinspace.training.loop import Stopped
from kinspace.training.settings import main_process

__all__ = ["train_command"]

Text = str | None
Whole = int | None


def train_command(  # noqa: PLR0913 - every option of the command is a parameter
    data: Annotated[
        str | None,
        typer.Argument(help="A folder, a table, an archive, NAME:FOLDER, digits or moths."),
    ] = None,
    method: Annotated[
        str, typer.Option(help="A method (kinspace methods lists them) or a recipe file.")
    ] = "nra",
    loss: Annotated[Text, typer.Option(help="Another loss in the recipe.")] = None,
    regularizer: Annotated[
        list[str] | None,
        typer.Option(help="NAME:WEIGHT, in place of the recipe's; may be given several times."),
    ] = None,
    change: Annotated[
        list[str] | None,
        typer.Option("--set", help="KEY=VALUE of the recipe, loss.beta=2; may be repeated."),
    ] = None,
    backbone: Annotated[Text, typer.Option(help="small, googlenet, or a name of timm's.")] = None,
    weights: Annotated[Text, typer.Option(help="Weights of the backbone, safetensors.")] = None,
    steps: Annotated[Whole, typer.Option(min=1, help="How long.")] = None,
    batch: Annotated[Whole, typer.Option(min=2, help="Samples a step.")] = None,
    micro_batch: Annotated[
        Whole, typer.Option(min=1, help="Samples through the model at a time; same gradient.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="The run folder.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with the run in this folder.")] = None,
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
    save: Annotated[
        int, typer.Option("--save-every", min=1, help="Steps between checkpoints.")
    ] = 200,
    log: Annotated[
        int, typer.Option("--log-every", min=1, help="Steps between rows of metrics.")
    ] = 10,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Go on without pictures that cannot be read.")
    ] = False,
    compiled: Annotated[bool, typer.Option("--compile", help="Through torch.compile.")] = False,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Log for it too.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Say nothing on the way.")] = False,
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
            recipe = _recipe(method, loss, regularizer, change, backbone, weights)
            recipe = changed(recipe, {"schedule.steps": steps}) if steps else recipe
            recipe = with_batch(recipe, batch) if batch else recipe
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
                compile=compiled,
                tensorboard=tensorboard,
                quiet=quiet,
            )
    if main_process() and not quiet:
        show(run)


def _refuse_changes(options: dict[str, Any]) -> None:
    if given := [name for name, value in options.items() if value is not None]:
        raise ValueError(
            f"--resume: goes on with the run as it was begun, got {', '.join(given)} too; leave "
            "that out, or begin a new run"
        )


def _recipe(
    method: str,
    loss: str | None,
    regularizers: list[str] | None,
    changes: list[str] | None,
    backbone: str | None,
    weights: str | None,
) -> Recipe:
    recipe = read_recipe(method)
    recipe = with_loss(recipe, loss) if loss else recipe
    recipe = with_regularizers(recipe, regularizers) if regularizers else recipe
    asked = dict(parse_set(text) for text in changes or [])
    if backbone is not None:
        asked["model.backbone"] = backbone
    if weights is not None:
        asked["model.weights"] = weights
    return changed(recipe, asked) if asked else recipe


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
