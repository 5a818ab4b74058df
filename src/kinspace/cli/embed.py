"""kinspace embed RUN DATA -o TABLE."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kinspace.cli.errors import told
from kinspace.cli.options import Batch, Data, Device, Readers, RunFolder
from kinspace.cli.progress import bar

__all__ = ["embed_command"]


def embed_command(
    run: RunFolder,
    data: Data,
    out: Annotated[Path, typer.Option("--out", "-o", help="The table to write, ending in .npz.")],
    shard: Annotated[
        int, typer.Option(min=1, help="Pictures between two saves; a stopped run goes on there.")
    ] = 8192,
    batch: Batch = 64,
    workers: Readers = 0,
    device: Device = None,
) -> None:
    """Embed pictures into a table of vectors, classes and names.

    The same command again goes on where it stopped. Under torchrun the processes share the work.
    Exit code 2: something was asked that cannot be.
    """
    with told(), bar("embedding") as progress:
        from kinspace.data.load import load_dataset
        from kinspace.inference import embed_to_file, load

        options = {"batch_size": batch, "workers": workers}
        table = embed_to_file(
            load(run, device), load_dataset(data), out, shard=shard, progress=progress, **options
        )
    if table is not None:
        typer.echo(f"{out}: {len(table):,} vectors of {table.dim} numbers")
