"""kinspace export RUN [FILE]."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kinspace.cli.errors import user_errors
from kinspace.cli.options import AllowOutside, RunFolder
from kinspace.cli.sources import trusted

__all__ = ["export_command"]


def export_command(
    run: RunFolder,
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="Output, .onnx or .pt2. Default: model.onnx in RUN."),
    ] = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="The same as --format onnx.")] = False,
    kind: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="onnx, or program: a PyTorch program (torch.export), which needs no extra. "
            "Default: by FILE, else onnx.",
        ),
    ] = None,
    data: Annotated[
        str | None, typer.Option(help="Pictures to compare on. Default: the run's data.")
    ] = None,
    allow_outside: AllowOutside = False,
) -> None:
    """Export a model to ONNX or a PyTorch program, and compare it with PyTorch.

    If the embeddings differ by more than 1e-4, nothing is written.
    """
    with user_errors():
        from kinspace._core.checks import plural
        from kinspace.inference import export_run

        pictures = trusted(data, allow_outside=allow_outside)
        done = export_run(run, file, pictures, format="onnx" if onnx else kind)
    count = plural(done.pictures, "picture")
    typer.echo(f"{done.file}: within {done.difference:.1e} of PyTorch on {count}")
