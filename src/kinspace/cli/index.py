"""kinspace index RUN [DATA]."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from kinspace._core.text import plural
from kinspace.cli.errors import told
from kinspace.cli.options import Batch, Device, Readers, RunFolder
from kinspace.cli.progress import bar

__all__ = ["index_command"]

OWNERS = {"kind": "faiss", "uri": "milvus", "name": "milvus"}  # options of one backend


def index_command(  # noqa: PLR0913 - every option of the command is a parameter
    run: RunFolder,
    data: Annotated[
        str | None, typer.Argument(help="The pictures to search in; by default the run's own.")
    ] = None,
    backend: Annotated[str, typer.Option(help="exact, faiss or milvus.")] = "exact",
    kind: Annotated[str | None, typer.Option(help="Of faiss: hnsw or ivf_pq.")] = None,
    uri: Annotated[
        str | None, typer.Option(help="Of milvus: a cluster's URL; else a file in the run folder.")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="Of milvus: a collection; what it held is searched until this is ready."),
    ] = None,
    batch: Batch = 64,
    workers: Readers = 0,
    device: Device = None,
) -> None:
    """Make pictures the gallery of a run, and set the thresholds on its validation classes.

    Exit code 2: something was asked that cannot be.
    """
    with told():
        from kinspace.inference import index_run
        from kinspace.search import recall_against_exact
        from kinspace.search.exact import ExactIndex

        options = _options(backend, {"kind": kind, "uri": uri, "name": name})
        with bar("embedding") as progress:
            model = index_run(
                run,
                data,
                backend=backend,
                options=options,
                device=device,
                progress=progress,
                batch_size=batch,
                workers=workers,
            )
        table = model.table
        typer.echo(f"{run}: a gallery of {plural(len(table), 'picture')}, searched by {backend}")
        if backend != "exact":
            exact = ExactIndex(table.dim, device=model.device)
            exact.add(table.vectors, range(len(table)))
            some = table.vectors[:: max(1, len(table) // 1000)]
            share = recall_against_exact(model.index, exact, some)
            typer.echo(f"finds {share:.1%} of the true 10 nearest, over {len(some):,} of them")
        found = model.thresholds
        if found is None:
            typer.echo("no thresholds: the run has no validation classes here to set them on")
        else:
            typer.echo(
                f"same kind from cosine {found.same:.3f} on: {found.tmr:.1%} of true and "
                f"{found.fmr:.1%} of false pairs of {found.classes} validation classes"
            )
            if found.test_tmr is not None:
                typer.echo(f"on the test classes {found.test_tmr:.1%} and {found.test_fmr:.1%}")


def _options(backend: str, given: dict[str, str | None]) -> dict[str, Any]:
    """What was given, where it is an option of the backend."""
    options = {name: value for name, value in given.items() if value is not None}
    for name in options:
        if backend != OWNERS[name]:
            raise ValueError(
                f"--{name}: expected with --backend {OWNERS[name]} alone, got {backend}"
            )
    return options
