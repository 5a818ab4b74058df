"""kinspace train DATA."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from kinspace.cli.errors import user_errors
from kinspace.cli.options import (
    DATA,
    AllowOutside,
    Baselines,
    BatchSize,
    Cache,
    Device,
    Overrides,
    OwnMethod,
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
from kinspace.cli.sources import LabelColumn, PathColumn, column_names
from kinspace.cli.tables import print_whole

if TYPE_CHECKING:
    from kinspace.run import Run

__all__ = ["train_command"]

EVERYDAY = ("data", "method", "out", "resume", "final", "backbone", "freeze", "device", "quiet")

Text = str | None
WITH_RESUME = ("data", "resume", "device", "workers", "quiet", "final", "log_to")
ROWS = {"pixels": "raw pixels", "final": "last step"}


def train_command(  # noqa: PLR0913 - every option of the command is a parameter
    ctx: typer.Context,
    data: Annotated[Text, typer.Argument(metavar="DATA", help=DATA)] = None,
    method: OwnMethod = None,
    loss: Annotated[Text, typer.Option(help="Replace the recipe's loss.")] = None,
    regularizer: Annotated[
        list[str] | None,
        typer.Option(help="Replace the recipe's regularizers: NAME or NAME:WEIGHT. Repeatable."),
    ] = None,
    changes: Overrides = None,
    backbone: Annotated[
        Text,
        typer.Option(
            help="small, googlenet, or a name of timm or torchvision. Default: by the pictures."
        ),
    ] = None,
    weights: Annotated[Text, typer.Option(help="Backbone weights, a safetensors file.")] = None,
    freeze: Annotated[
        bool,
        typer.Option("--freeze", help="Train head and loss on features of the frozen backbone."),
    ] = False,
    budget: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            help="Steps of the search for learning rate and length, in trainings; 0: no search. "
            "Default: 3, or 0 with --steps or a learning rate.",
        ),
    ] = None,
    steps: Steps = None,
    batch: BatchSize = None,
    micro_batch: Annotated[
        int | None,
        typer.Option(min=1, help="Samples per forward pass, to save memory. Same gradient."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder. Default: runs/DATA-METHOD-NUMBER.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue the run in this folder.")] = None,
    final: Annotated[
        bool,
        typer.Option(
            "--final", help="Then train on all classes too, in RUN/final: the model to use."
        ),
    ] = False,
    split: Split = None,
    seed: Seed = 0,
    device: Device = None,
    precision: Precision = None,
    cache: Cache = "auto",
    workers: Workers = None,
    save_every: Annotated[int, typer.Option(min=1, help="Steps between checkpoints.")] = 200,
    log_every: Annotated[
        int, typer.Option(min=1, help="Steps between rows of metrics.jsonl.")
    ] = 10,
    keep_every: Annotated[
        int | None,
        typer.Option(
            min=1, help="Steps between weights kept in RUN/checkpoints. Default: none kept."
        ),
    ] = None,
    skip_bad: SkipBad = False,
    path_column: PathColumn = None,
    label_column: LabelColumn = None,
    allow_outside: AllowOutside = False,
    baselines: Baselines = True,
    compiled: Annotated[
        bool, typer.Option("--compile", help="Compile the model with torch.compile.")
    ] = False,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also log to TensorBoard.")
    ] = False,
    log_to: Annotated[
        list[str] | None,
        typer.Option(help="Also log to tensorboard, wandb or mlflow. Repeatable."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Train a model on labeled pictures and evaluate it on unseen classes.

    The learning rate and the number of steps are chosen on held-out training classes. If no
    training is better there than the backbone as it is, the backbone is kept. --steps, a learning
    rate or --budget 0 skips this search.

    Ctrl-C saves a checkpoint; continue with --resume RUN. A loss that is NaN or infinite ends the
    run with exit code 2.
    """
    with user_errors():
        from kinspace.distributed import is_main_process
        from kinspace.training import resume_training, train

        model_keys: dict[str, Any] = {"model.backbone": backbone, "model.weights": weights}
        model_keys |= {"model.freeze": freeze or None, "search.budget": budget}
        model_keys["search.cpu_minutes"] = None if budget is None else "none"
        # an option that is not given does not undo a --set of its key
        model_keys = {key: value for key, value in model_keys.items() if value is not None}
        if resume is not None:
            _refuse_with_resume(ctx)
            run = resume_training(
                resume,
                data,
                final=final,
                device=device,
                workers=workers,
                callbacks=log_to or (),
                quiet=quiet,
            )
        elif data is None:
            raise ValueError(
                "DATA: expected a folder, a table, an archive or a name: kinspace train photos/"
            )
        else:
            run = train(
                data,
                method=recipe_from_options(
                    method,
                    overrides(changes, steps) | model_keys,
                    batch=batch,
                    loss=loss,
                    regularizers=regularizer,
                ),
                out=out,
                final=final,
                micro_batch=micro_batch,
                split=split,
                seed=seed,
                device=device,
                precision=precision,
                cache=cache,
                workers=workers,
                save_every=save_every,
                log_every=log_every,
                keep_every=keep_every,
                skip_bad=skip_bad,
                columns=column_names(path_column, label_column),
                allow_outside=allow_outside,
                baselines=baselines,
                compile=compiled,
                tensorboard=tensorboard,
                callbacks=log_to or (),
                quiet=quiet,
            )
    if is_main_process() and not quiet:
        print_results(run)


def _refuse_with_resume(ctx: typer.Context) -> None:
    """A ValueError for an option that a resumed run would not heed, whatever its value."""
    given = [
        parameter.opts[0]
        for parameter in ctx.command.params
        if parameter.name not in WITH_RESUME
        and getattr(ctx.get_parameter_source(str(parameter.name)), "name", "") == "COMMANDLINE"
    ]
    if given:
        raise ValueError(
            f"--resume: continues the run with its own settings, got {', '.join(given)} too; leave "
            "that out, or start a new run"
        )


def print_results(run: Run) -> None:
    """Print the measures on the test part as a table."""
    results = run.results
    table = Table("test part", box=None, padding=(0, 2, 0, 0))
    measures = [name for name in results.get("selected", {}) if name.startswith("recall@")]
    for name in measures:
        table.add_column(name.replace("recall", "Recall"), justify="right")
    table.add_column("mAP", justify="right")
    rows = {"pixels": ROWS["pixels"], "untrained": run.start_name, "final": ROWS["final"]}
    if "validation_recall@1" in results:
        rows["selected"] = f"best on validation (step {results['selected_step']})"
    for name, title in rows.items():
        if name in results:
            cells = [f"{results[name][measure]:.1%}" for measure in measures]
            table.add_row(title, *cells, f"{results[name]['map']:.1%}")
    console = Console()
    if measures:
        print_whole(table)
    selection = run.selection
    lines = [*run.verdict]
    if selection is not None and selection["trained"]:
        lines.append(selection["reason"])
    lines.append(f"run folder: {run.folder}")
    if results.get("selected") and run.about["split"] != "all":
        lines.append(
            f"to train on the test classes too: kinspace train --resume {run.folder} --final"
        )
    lines.append(f"next: kinspace index {run.folder}, then kinspace serve {run.folder}")
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
