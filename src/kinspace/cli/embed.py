"""kinspace embed RUN DATA -o TABLE."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kinspace.cli.errors import user_errors
from kinspace.cli.options import Data, Device, ImageBatch, LoaderWorkers, RunFolder
from kinspace.cli.progress import progress

__all__ = ["embed_command"]


def embed_command(
    run: RunFolder,
    data: Data,
    out: Annotated[Path, typer.Option("--out", "-o", help="Table to write, ending in .npz.")],
    shard: Annotated[
        int, typer.Option(min=1, help="Pictures per shard; finished shards are kept on disk.")
    ] = 8192,
    batch: ImageBatch = 64,
    workers: LoaderWorkers = 0,
    device: Device = None,
) -> None:
    """Embed pictures into a table of vectors, classes and names.

    If interrupted, the same command continues after the last finished shard. Under torchrun the
    processes share the work.
    """
    with user_errors(), progress("embedding") as display:
        from kinspace.data import load_dataset
        from kinspace.inference import embed_to_file, load

        table = embed_to_file(
            load(run, device),
            load_dataset(data),
            out,
            shard=shard,
            progress=display.count,
            batch_size=batch,
            workers=workers,
        )
    if table is not None:
        typer.echo(f"{out}: {len(table):,} vectors of {table.dim} numbers")
