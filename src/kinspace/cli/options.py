"""Arguments and options that several commands share, and the recipe they describe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from kinspace.recipes import Recipe

__all__ = [
    "DATA",
    "AllowOutside",
    "Baselines",
    "BatchSize",
    "Cache",
    "CsvOut",
    "Data",
    "Device",
    "EvaluatedData",
    "GalleryClass",
    "GalleryData",
    "GalleryPictures",
    "ImageBatch",
    "IndexedRun",
    "Json",
    "LoaderWorkers",
    "Method",
    "Overrides",
    "OwnMethod",
    "Precision",
    "Quiet",
    "RunFolder",
    "Seed",
    "SkipBad",
    "Source",
    "Split",
    "Steps",
    "Strangers",
    "Workers",
    "overrides",
    "recipe_from_options",
]

DATA = "Folder, table, archive, NAME:FOLDER of a standard data set, digits or moths."

Data = Annotated[str, typer.Argument(metavar="DATA", help=DATA)]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="Run folder.")]
IndexedRun = Annotated[
    Path, typer.Argument(metavar="RUN", help="Run folder with a gallery (see kinspace index).")
]
Source = Annotated[
    str,
    typer.Argument(
        metavar="RUN|TABLE",
        help="Run folder, or vectors: .npz, .npy with a .csv, .safetensors or .parquet.",
    ),
]
EvaluatedData = Annotated[
    str | None,
    typer.Argument(
        metavar="DATA", help="Other data to evaluate on, or the run's data if it has moved."
    ),
]
GalleryData = Annotated[
    str | None,
    typer.Argument(metavar="DATA", help="Data of the gallery's pictures. Default: the run's data."),
]

GalleryPictures = Annotated[
    list[str] | None,
    typer.Argument(metavar="PICTURE...", help="Ids (see kinspace list) or files of pictures."),
]
GalleryClass = Annotated[
    str | None, typer.Option("--class", metavar="NAME", help="All pictures of this class.")
]

CsvOut = Annotated[
    Path | None, typer.Option("--out", "-o", help="CSV file to write. Default: the terminal.")
]

Device = Annotated[
    str | None, typer.Option(help="cpu, cuda or cuda:1. Default: a GPU if there is one.")
]
ImageBatch = Annotated[int, typer.Option("--batch", min=1, help="Pictures per forward pass.")]
_WORKERS = "Number of processes that load pictures."
LoaderWorkers = Annotated[int, typer.Option("--workers", min=0, help=_WORKERS)]
Workers = Annotated[int | None, typer.Option(min=0, help=f"{_WORKERS} Default: by the machine.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print errors only.")]
Strangers = Annotated[
    float | None,
    typer.Option(
        "--strangers",
        help="Share of pictures of other classes that may get a class: 0.001 (strict) to 0.5 "
        "(lenient). Default: that of the index, 0.15.",
    ),
]
Seed = Annotated[int, typer.Option(min=0, help="Random seed.")]

Method = Annotated[str, typer.Option(help="Method (see kinspace methods) or recipe file.")]
OwnMethod = Annotated[
    str | None,
    typer.Option(
        "--method",
        help="Method (see kinspace methods) or recipe file. Default: nra, and on the features of a "
        "frozen backbone proxy_nca too.",
    ),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", help="Override a recipe value: KEY=VALUE, loss.beta=2. Repeatable."),
]
Steps = Annotated[int | None, typer.Option(min=1, help="Training steps. Default: the recipe's.")]
BatchSize = Annotated[
    int | None, typer.Option("--batch", min=2, help="Samples per step. Default: the recipe's.")
]
Split = Annotated[
    str | None,
    typer.Option(
        help="auto, random_classes, zero_shot, official, stratified or all. Default: the recipe's."
    ),
]
Precision = Annotated[
    str | None, typer.Option(help="float32, bf16 or fp16. Default: bf16 on a GPU, else float32.")
]
Cache = Annotated[
    str, typer.Option(help="Where to keep decoded pictures: auto, memory, gpu, none or a folder.")
]
Baselines = Annotated[
    bool, typer.Option(help="Also evaluate raw pixels and the untrained backbone.")
]
AllowOutside = Annotated[
    bool,
    typer.Option("--allow-outside", help="Let a table name pictures outside its folder."),
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Leave out pictures that cannot be read.")
]


def overrides(texts: Sequence[str] | None, steps: int | None) -> dict[str, Any]:
    """The values of --set and --steps by recipe key.

    >>> overrides(["loss.alpha=2"], 7)
    {'loss.alpha': 2, 'schedule.steps': 7}
    """
    from kinspace.recipes import parse_set

    values = dict(parse_set(text) for text in texts or ())
    return values if steps is None else values | {"schedule.steps": steps}


FLAGS = {  # options that are a recipe's key
    "model.backbone": "--backbone",
    "model.weights": "--weights",
    "model.freeze": "--freeze",
    "schedule.steps": "--steps",
    "search.budget": "--budget",
    "search.cpu_minutes": "--budget",
}


def recipe_from_options(
    method: str | Recipe | None,
    changes: Mapping[str, Any],
    *,
    batch: int | None = None,
    loss: str | None = None,
    regularizers: Sequence[str] | None = None,
) -> Recipe:
    """The recipe of --method with --loss, --regularizer, other values and --batch, in this order.

    Values that are None change nothing. Without a method it is `default_recipe`.

    >>> recipe = recipe_from_options("nra", {"loss.alpha": 2, "model.backbone": None}, batch=64)
    >>> recipe.loss.options["alpha"], recipe.sampler.options["classes"]
    (2.0, 8)
    """
    from kinspace.recipes import (
        Recipe,
        default_recipe,
        read_recipe,
        with_changes,
        with_loss,
        with_regularizers,
    )
    from kinspace.recipes.overrides import with_batch_size

    if method is None:
        method = default_recipe()
    recipe = method if isinstance(method, Recipe) else read_recipe(method)
    if loss is not None:
        recipe = with_loss(recipe, loss)
    if regularizers:
        recipe = with_regularizers(recipe, regularizers)
    if given := {key: value for key, value in changes.items() if value is not None}:
        where = ", ".join(dict.fromkeys(FLAGS.get(key, "--set") for key in given))
        recipe = with_changes(recipe, given, where=where)
    return recipe if batch is None else with_batch_size(recipe, batch)
