"""kinspace report RUN|TABLE."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kinspace.cli.errors import user_errors
from kinspace.cli.options import Device, EvaluatedData, Seed, Source
from kinspace.cli.progress import progress

__all__ = ["report_command"]


def report_command(
    source: Source,
    data: EvaluatedData = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", file_okay=False, help="Output folder. Default: RUN/report."),
    ] = None,
    seed: Seed = 0,
    device: Device = None,
    skip_check: Annotated[
        bool, typer.Option("--skip-check", help="Do not check the pictures of the data.")
    ] = False,
) -> None:
    """Write an HTML report on a run or a table of vectors.

    The page needs neither a network nor other files. Figures and numbers are also written as files.
    """
    with user_errors(), progress() as display:
        from kinspace.report import write_report

        page = write_report(
            source,
            data,
            out=out,
            checked=not skip_check,
            seed=seed,
            device=device,
            status=display.status,
        )
    typer.echo(page)
