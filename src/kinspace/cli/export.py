"""kinspace export RUN --onnx [FILE]."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kinspace._core.text import plural
from kinspace.cli.errors import told
from kinspace.cli.options import RunFolder

__all__ = ["export_command"]

CHECKED = 32  # pictures


def export_command(
    run: RunFolder,
    file: Annotated[
        Path | None, typer.Argument(help="The file to write; by default model.onnx in the run.")
    ] = None,
    onnx: Annotated[bool, typer.Option("--onnx", help="As ONNX, the one format there is.")] = False,
    data: Annotated[
        str | None, typer.Option(help="Pictures to check it on; by default the run's own.")
    ] = None,
) -> None:
    """Write the model as ONNX, checked against PyTorch on pictures.

    Exit code 2: something was asked that cannot be, or the two differ; then there is no file.
    """
    with told():
        if not onnx:
            raise ValueError("--onnx: expected, it is the one format there is")
        file = run / "model.onnx" if file is None else file
        from kinspace.data.load import load_dataset
        from kinspace.inference import export_onnx, load

        model = load(run, "cpu")
        pictures = load_dataset(model.about["data"] if data is None else data).pictures
        step = max(1, len(pictures) // CHECKED)
        some = [pictures.read(place) for place in range(0, len(pictures), step)][:CHECKED]
        apart = export_onnx(model, file, some)
    typer.echo(f"{file}: within {apart:.1e} of PyTorch on {plural(len(some), 'picture')}")
