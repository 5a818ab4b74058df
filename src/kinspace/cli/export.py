"""kinspace export RUN --onnx FILE."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kinspace.cli.errors import told
from kinspace.cli.options import RunFolder
from kinspace.data.check_report import counted

__all__ = ["export_command"]

CHECKED = 32  # pictures


def export_command(
    run: RunFolder,
    onnx: Annotated[Path, typer.Option("--onnx", help="The ONNX file to write.")],
    data: Annotated[
        str | None, typer.Option(help="Pictures to check it on; by default the run's own.")
    ] = None,
) -> None:
    """Write the model as ONNX, checked against PyTorch on pictures.

    Exit code 2: something was asked that cannot be, or the two differ; then there is no file.
    """
    with told():
        from kinspace.bundle import export_onnx, load
        from kinspace.data.opening import open_data

        model = load(run, "cpu")
        pictures = open_data(model.about["data"] if data is None else data).pictures
        step = max(1, len(pictures) // CHECKED)
        some = [pictures.read(place) for place in range(0, len(pictures), step)][:CHECKED]
        apart = export_onnx(model, onnx, some)
    typer.echo(f"{onnx}: within {apart:.1e} of PyTorch on {counted(len(some), 'picture')}")
