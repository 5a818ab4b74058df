"""kinspace index RUN [DATA]."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kinspace.cli.errors import told
from kinspace.cli.progress import bar

__all__ = ["index_command"]


def index_command(  # noqa: PLR0913 - every option of the command is a parameter
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    data: Annotated[
        str | None, typer.Argument(help="The pictures to search in; by default the run's own.")
    ] = None,
    backend: Annotated[str, typer.Option(help="exact, faiss or milvus.")] = "exact",
    kind: Annotated[str | None, typer.Option(help="Of faiss: hnsw or ivf_pq.")] = None,
    uri: Annotated[
        str | None, typer.Option(help="Of milvus: a cluster's URL; else a file in the run folder.")
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Pictures through the model at a time.")] = 64,
    workers: Annotated[int, typer.Option(min=0, help="Processes that read pictures.")] = 0,
    device: Annotated[str | None, typer.Option(help="cpu, cuda; else a GPU if any.")] = None,
) -> None:
    """Make pictures the gallery of a run, and set the thresholds on its validation classes.

    Exit code 2: something was asked that cannot be.
    """
    with told():
        from kinspace.bundle import index_run
        from kinspace.search import recall_against_exact
        from kinspace.search.exact import ExactIndex

        options = _options(backend, kind, uri)
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
        typer.echo(f"{run}: a gallery of {len(table):,} pictures, searched by {backend}")
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


def _options(backend: str, kind: str | None, uri: str | None) -> dict[str, Any]:
    for name, value, of in (("--kind", kind, "faiss"), ("--uri", uri, "milvus")):
        if value is not None and backend != of:
            raise ValueError(f"{name}: expected with --backend {of} alone, got {backend}")
    options = {"kind": kind, "uri": uri}
    return {name: value for name, value in options.items() if value is not None}
