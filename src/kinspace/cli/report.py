"""kinspace report RUN|TABLE."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kinspace.cli.errors import told
from kinspace.cli.evaluate import DATA, SOURCE, telling
from kinspace.cli.options import Device, Seed

__all__ = ["report_command"]


def report_command(
    source: Annotated[str, typer.Argument(metavar="RUN|TABLE", help=SOURCE)],
    data: Annotated[str | None, typer.Argument(help=DATA)] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", file_okay=False, help="The folder; by default RUN/report."),
    ] = None,
    seed: Seed = 0,
    device: Device = None,
    skip_check: Annotated[
        bool, typer.Option("--skip-check", help="Do not look at every picture of the data.")
    ] = False,
) -> None:
    """Write a page that shows how good a model is, with figures and numbers beside it.

    The page needs no network and no other file. Exit code 0: done; 1: a disk fails; 2: it cannot be
    opened or judged.
    """
    with told(), telling() as status:
        from kinspace.report.page import write_report

        page = write_report(
            source, data, out=out, checked=not skip_check, seed=seed, device=device, status=status
        )
    typer.echo(page)
