"""Options that several commands have, each said once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "DATA",
    "Baselines",
    "Batch",
    "Cache",
    "Change",
    "Data",
    "Device",
    "Indexed",
    "Json",
    "Method",
    "Precision",
    "Quiet",
    "Readers",
    "RunFolder",
    "Samples",
    "Seed",
    "SkipBad",
    "Split",
    "Steps",
    "Workers",
]

DATA = "A folder, a table, an archive, NAME:FOLDER, digits or moths."

Data = Annotated[str, typer.Argument(help=DATA)]
RunFolder = Annotated[Path, typer.Argument(help="A run folder.")]
Indexed = Annotated[Path, typer.Argument(help="A run folder with a gallery (kinspace index).")]

Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1; else a GPU if any.")]
Batch = Annotated[int, typer.Option(min=1, help="Pictures through the model at a time.")]
_READ = "Processes that read pictures."
Readers = Annotated[int, typer.Option("--workers", min=0, help=_READ)]
Workers = Annotated[int | None, typer.Option(min=0, help=_READ)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Say nothing on the way.")]
Seed = Annotated[int, typer.Option(min=0, help="Of everything that is drawn.")]

Method = Annotated[
    str, typer.Option(help="A method (kinspace methods lists them) or a recipe file.")
]
Change = Annotated[
    list[str] | None,
    typer.Option("--set", help="KEY=VALUE of the recipe, loss.beta=2; may be repeated."),
]
Steps = Annotated[int | None, typer.Option(min=1, help="How long, for each training.")]
Samples = Annotated[int | None, typer.Option("--batch", min=2, help="Samples a step.")]
Split = Annotated[
    str | None,
    typer.Option(help="zero_shot, official, stratified or all; else the recipe's."),
]
Precision = Annotated[str | None, typer.Option(help="float32, bf16 or fp16.")]
Cache = Annotated[str, typer.Option(help="Decoded pictures: auto, memory, gpu, none, or a folder.")]
Baselines = Annotated[
    bool, typer.Option(help="Judge raw pixels and the untrained backbone too, at the end.")
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Go on without pictures that cannot be read.")
]
