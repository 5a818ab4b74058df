"""kinspace report RUN|TABLE, or --backbone NAME DATA."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kinspace.cli.errors import user_errors
from kinspace.cli.options import AllowOutside, Device, EvaluatedData, Seed
from kinspace.cli.progress import print_next, progress
from kinspace.cli.sources import (
    BackboneOption,
    BackboneWeights,
    SkipBadPictures,
    Unlabeled,
    open_run_or_backbone,
    trusted,
)

__all__ = ["report_command"]


def report_command(  # noqa: PLR0913 - every option of the command is a parameter
    source: Annotated[
        str,
        typer.Argument(
            metavar="RUN|TABLE|DATA",
            help="Run folder, or vectors: .npz, .npy with a .csv, .safetensors or .parquet; with "
            "--backbone the pictures.",
        ),
    ],
    data: EvaluatedData = None,
    *,
    backbone: BackboneOption = None,
    weights: BackboneWeights = None,
    unlabeled: Unlabeled = False,
    skip_bad: SkipBadPictures = False,
    allow_outside: AllowOutside = False,
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
    A pretrained backbone (--backbone) embeds pictures without training; a run folder is made first.
    For pictures without classes the page shows the map, neighbors and near-duplicates.
    """
    with user_errors(), progress() as display:
        from kinspace.report import write_report

        run = backbone and open_run_or_backbone(
            source,
            display,
            backbone=backbone,
            weights=weights,
            unlabeled=unlabeled,
            skip_bad=skip_bad,
            allow_outside=allow_outside,
            device=device,
        )
        page = write_report(
            run or source,
            trusted(data, allow_outside=allow_outside),
            out=out,
            checked=not skip_check,
            seed=seed,
            device=device,
            status=display.status,
        )
    typer.echo(page)
    if (Path(source) / "run.json").exists():
        indexed = (Path(source) / "gallery.npz").exists()
        first = "" if indexed else f"kinspace index {source}, then "
        print_next(f"{first}kinspace serve {source} --open")
