"""kinspace embed RUN DATA -o TABLE, or --backbone NAME DATA -o TABLE."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kinspace.cli.errors import user_errors
from kinspace.cli.options import DATA, AllowOutside, Device, ImageBatch, LoaderWorkers
from kinspace.cli.progress import print_next, progress
from kinspace.cli.sources import (
    BackboneOption,
    BackboneWeights,
    LabelColumn,
    PathColumn,
    RunOrData,
    SkipBadPictures,
    Unlabeled,
    column_names,
    load_pictures,
)

__all__ = ["embed_command"]

EVERYDAY = ("source", "data", "out", "backbone", "skip_bad", "device")


def embed_command(  # noqa: PLR0913 - every option of the command is a parameter
    source: RunOrData,
    data: Annotated[str | None, typer.Argument(metavar="DATA", help=DATA)] = None,
    *,
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", help="Table to write: .npz, .npy, .parquet or .tsv (TensorBoard)."
        ),
    ],
    backbone: BackboneOption = None,
    weights: BackboneWeights = None,
    unlabeled: Unlabeled = False,
    path_column: PathColumn = None,
    allow_outside: AllowOutside = False,
    label_column: LabelColumn = None,
    skip_bad: SkipBadPictures = False,
    shard: Annotated[
        int, typer.Option(min=1, help="Pictures per shard; finished shards are kept on disk.")
    ] = 8192,
    batch: ImageBatch = 64,
    workers: LoaderWorkers = 0,
    device: Device = None,
) -> None:
    """Embed pictures into a table of vectors, classes and names.

    A pretrained backbone (--backbone) needs no run: the first argument is then DATA. If
    interrupted, the same command continues after the last finished shard. Under torchrun the
    processes share the work.
    """
    with user_errors(), progress("embedding") as display:
        model, pictures = model_and_pictures(source, data, backbone)
        from kinspace.inference import embed_to_file, load

        dataset = load_pictures(
            pictures,
            display,
            unlabeled=unlabeled,
            skip_bad=skip_bad,
            columns=column_names(path_column, label_column),
            allow_outside=allow_outside,
        )
        table = embed_to_file(
            load(model, device, weights=weights),
            dataset,
            out,
            shard=shard,
            progress=display.count,
            batch_size=batch,
            workers=workers,
        )
    if table is not None:
        typer.echo(f"{out}: {len(table):,} vectors of {table.dim} numbers")
        print_next(f"kinspace report {out}")


def model_and_pictures(source: str, data: str | None, backbone: str | None) -> tuple[str, str]:
    """The name or folder of the model, and the pictures, in one of the two forms.

    >>> model_and_pictures("photos", None, "resnet50")
    ('resnet50', 'photos')
    """
    if backbone is None and data is not None:
        return source, data
    if backbone is not None and data is None:
        return backbone, source
    if backbone is None:
        raise ValueError(
            "DATA: expected the pictures to embed after the run, got none; without a run: "
            f"kinspace embed --backbone tf_efficientnet_lite0 {source} -o TABLE"
        )
    raise ValueError(f"--backbone: expected without a run, got RUN {source!r} and DATA {data!r}")
