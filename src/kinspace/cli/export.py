"""kinspace export RUN --onnx [FILE]."""

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
        typer.Argument(metavar="FILE", help="Output file. Default: model.onnx in the run folder."),
    ] = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="Export to ONNX. Required.")] = False,
    data: Annotated[
        str | None, typer.Option(help="Pictures to compare on. Default: the run's data.")
    ] = None,
    allow_outside: AllowOutside = False,
) -> None:
    """Export a model to ONNX and compare it with PyTorch.

    If the embeddings differ by more than 1e-4, nothing is written.
    """
    with user_errors():
        if not onnx:
            raise ValueError("--onnx: expected, the only format that is supported")
        from kinspace._core.checks import plural
        from kinspace.inference import export_run

        done = export_run(run, file, trusted(data, allow_outside=allow_outside))
    pictures = plural(done.pictures, "picture")
    typer.echo(f"{done.file}: within {done.difference:.1e} of PyTorch on {pictures}")
