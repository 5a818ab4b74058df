"""Arguments and options of commands that take a run, or pictures and a pretrained backbone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kinspace.cli.progress import Display

if TYPE_CHECKING:
    from kinspace.data import Dataset
    from kinspace.run import Run

__all__ = [
    "BackboneOption",
    "BackboneWeights",
    "LabelColumn",
    "PathColumn",
    "RunOrData",
    "RunOut",
    "SkipBadPictures",
    "Unlabeled",
    "column_names",
    "load_pictures",
    "open_run_or_backbone",
    "trusted",
]

RunOrData = Annotated[
    str, typer.Argument(metavar="RUN|DATA", help="Run folder, or the pictures with --backbone.")
]
BackboneOption = Annotated[
    str | None,
    typer.Option(
        "--backbone",
        metavar="NAME",
        help="Use this pretrained backbone without training, instead of a run: "
        "tf_efficientnet_lite0, or another name of timm or torchvision.",
    ),
]
BackboneWeights = Annotated[
    Path | None,
    typer.Option("--weights", help="With --backbone, a safetensors file with its weights."),
]
RunOut = Annotated[
    Path | None,
    typer.Option(
        "--out",
        "-o",
        help="With --backbone, the run folder to make. Default: runs/DATA-BACKBONE-NUMBER.",
    ),
]
Unlabeled = Annotated[
    bool,
    typer.Option(
        "--unlabeled",
        help="Ignore classes and read all pictures, however the folders are nested. Not needed "
        "for a folder with all pictures directly in it.",
    ),
]
PathColumn = Annotated[
    str | None,
    typer.Option("--path-column", help="Column of a table with the pictures. Default: path."),
]
LabelColumn = Annotated[
    str | None,
    typer.Option("--label-column", help="Column of a table with the classes. Default: label."),
]
SkipBadPictures = Annotated[
    bool,
    typer.Option("--skip-bad", help="Leave out pictures that cannot be read, and list them."),
]


def column_names(path: str | None, label: str | None) -> dict[str, str] | None:
    """The columns of a table that --path-column and --label-column name.

    >>> column_names("file", None)
    {'path': 'file'}
    """
    given = {"path": path, "label": label}
    return {name: column for name, column in given.items() if column is not None} or None


def trusted(data: str | None, *, allow_outside: bool) -> Dataset | str | None:
    """DATA as it is; with --allow-outside the data set, loaded with that permission."""
    from kinspace.data import load_dataset

    if data is None or not allow_outside:
        return data
    return load_dataset(data, allow_outside=True)


def load_pictures(
    data: str,
    display: Display,
    *,
    unlabeled: bool,
    skip_bad: bool,
    columns: dict[str, str] | None = None,
    allow_outside: bool = False,
) -> Dataset:
    """The data set; skip_bad: without the pictures that cannot be read, which are listed."""
    from kinspace.data import check, drop_unreadable, load_dataset

    dataset = load_dataset(
        data,
        labeled=False if unlabeled else None,
        columns=columns,
        allow_outside=allow_outside,
    )
    if not skip_bad:
        return dataset
    display.status("checking the pictures")
    found = check(dataset, duplicates=False, progress=display.count)
    _print_left_out([(bad.name, bad.reason) for bad in found.bad], found.pictures, display)
    return drop_unreadable(dataset, found)


def open_run_or_backbone(  # noqa: PLR0913 - the options that several commands share
    source: str,
    display: Display,
    *,
    backbone: str | None,
    weights: Path | None = None,
    out: Path | None = None,
    unlabeled: bool = False,
    columns: dict[str, str] | None = None,
    skip_bad: bool = False,
    allow_outside: bool = False,
    device: str | None = None,
) -> Run:
    """The run in a folder; with a backbone the run of it and the pictures in `source`."""
    from kinspace.inference import pretrained_run
    from kinspace.run import open_run

    if backbone is None:
        for name, value in (("--weights", weights), ("--out", out)):
            if value is not None:
                raise ValueError(f"{name}: expected with --backbone only, got {value}")
        return open_run(source)
    run = pretrained_run(
        source,
        backbone,
        out=out,
        weights=weights,
        labeled=False if unlabeled else None,
        columns=columns,
        skip_bad=skip_bad,
        allow_outside=allow_outside,
        device=device,
        status=display.status,
        progress=display.count,
    )
    skipped = [(str(name), str(reason)) for name, reason in run.about["skipped"]]
    total = run.about["pictures"]["test"] + len(skipped)
    _print_left_out(skipped, total, display)
    return run


def _print_left_out(bad: list[tuple[str, str]], total: int, display: Display) -> None:
    from kinspace.data.validation_report import LISTED

    if not bad:
        return
    display.print(f"left out {len(bad):,} of {total:,} pictures, which cannot be read:")
    for name, reason in bad[:LISTED]:
        display.print(f"  {name}: {reason}")
    if len(bad) > LISTED:
        display.print(f"  and {len(bad) - LISTED:,} more")
