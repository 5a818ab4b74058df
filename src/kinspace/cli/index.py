"""kinspace index RUN [DATA], or --backbone NAME DATA."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from kinspace.cli.errors import user_errors
from kinspace.cli.options import AllowOutside, Device, ImageBatch, LoaderWorkers, Strangers
from kinspace.cli.progress import print_next, progress
from kinspace.cli.sources import (
    BackboneOption,
    BackboneWeights,
    LabelColumn,
    PathColumn,
    RunOrData,
    RunOut,
    SkipBadPictures,
    Unlabeled,
    column_names,
    load_pictures,
    open_run_or_backbone,
)

if TYPE_CHECKING:
    from kinspace.inference import EmbeddingModel

__all__ = ["index_command"]

EVERYDAY = ("source", "data", "backbone", "out", "replace", "skip_bad", "strangers")

BACKENDS_OF = {  # by option
    "precision": ("exact", "milvus"),
    "kind": ("faiss",),
    "uri": ("milvus",),
    "name": ("milvus",),
}


def index_command(  # noqa: PLR0913 - every option of the command is a parameter
    source: RunOrData,
    data: Annotated[
        str | None,
        typer.Argument(metavar="DATA", help="Pictures of the gallery. Default: the run's data."),
    ] = None,
    *,
    backbone: BackboneOption = None,
    weights: BackboneWeights = None,
    out: RunOut = None,
    unlabeled: Unlabeled = False,
    path_column: PathColumn = None,
    allow_outside: AllowOutside = False,
    label_column: LabelColumn = None,
    skip_bad: SkipBadPictures = False,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="Replace the gallery there is, and all that was added."),
    ] = False,
    rebuild: Annotated[
        bool,
        typer.Option(
            "--rebuild", help="Build the index anew from the vectors of the gallery there is."
        ),
    ] = False,
    search: Annotated[
        str | None,
        typer.Option(
            "--backend",
            help="Search with exact, faiss or milvus. Default: exact; with --rebuild as before.",
        ),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(
            help="Vectors of the search by exact or milvus: float32, int8 or binary, re-scored "
            "exactly. Binary in Milvus needs a server."
        ),
    ] = None,
    kind: Annotated[
        str | None, typer.Option(help="Index type, with --backend faiss: hnsw or ivf_pq.")
    ] = None,
    uri: Annotated[
        str | None,
        typer.Option(help="Server URL, with --backend milvus. Default: a file in the run folder."),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            help="Collection alias, with --backend milvus. An existing collection of this name "
            "stays in use until the new one is complete."
        ),
    ] = None,
    truncate_dim: Annotated[
        int | None,
        typer.Option(min=1, help="Keep the first so many numbers of each vector. Default: all."),
    ] = None,
    rerank: Annotated[
        str | None,
        typer.Option(
            help="Show neighbors in the order of query_expansion or k_reciprocal; the class is "
            "decided by cosines. Default: none; with --rebuild as before."
        ),
    ] = None,
    batch: ImageBatch = 64,
    workers: LoaderWorkers = 0,
    strangers: Strangers = None,
    device: Device = None,
) -> None:
    """Build the search gallery of a run and set its thresholds.

    The thresholds decide whether a picture is of a class of the gallery. They are set on the
    classes that the model was not trained on, each left out of the gallery in turn. A run folder is
    made first, with the option --backbone, of pictures with or without classes and without
    training.
    """
    with user_errors():
        options = _backend_options(
            search or "exact", {"precision": precision, "kind": kind, "uri": uri, "name": name}
        )
        from kinspace.evaluation.thresholds import DEFAULT_STRANGERS
        from kinspace.inference import index_run, rebuild_index

        with progress("embedding") as display:
            if backbone is not None and data is not None:
                raise ValueError(f"DATA: expected one with --backbone, got {source!r} and {data!r}")
            columns = column_names(path_column, label_column)
            run = open_run_or_backbone(
                source,
                display,
                backbone=backbone,
                weights=weights,
                out=out,
                unlabeled=unlabeled,
                columns=columns if backbone is not None else None,
                skip_bad=skip_bad,
                allow_outside=allow_outside,
                device=device,
            )
            if rebuild:
                if data is not None or replace:
                    raise ValueError("--rebuild: expected without DATA and without --replace")
                display.status("building the index")
                model = rebuild_index(
                    run, backend=search, options=options, rerank=rerank, device=device
                )
                _print_gallery(model)
                return
            pictures = data and load_pictures(
                data,
                display,
                unlabeled=unlabeled,
                skip_bad=skip_bad,
                columns=columns,
                allow_outside=allow_outside,
            )
            model = index_run(
                run,
                pictures,
                backend=search or "exact",
                options=options,
                replace_gallery=replace,
                truncate_dim=truncate_dim,
                rerank=rerank or "none",
                device=device,
                progress=display.count,
                batch_size=batch,
                workers=workers,
                strangers=DEFAULT_STRANGERS if strangers is None else strangers,
            )
        _print_gallery(model)
        print_thresholds(model)
        print_next(f"kinspace serve {run.folder} --open")


def _print_gallery(model: EmbeddingModel) -> None:
    from kinspace._core.checks import plural
    from kinspace.inference import gallery_recall

    assert model.gallery is not None
    backend, count = model.gallery.backend, plural(len(model.table), "picture")
    if model.gallery.precision != "float32":
        backend += f" on {model.gallery.precision} vectors, re-scored exactly"
    order = "" if model.gallery.rerank == "none" else f", shown by {model.gallery.rerank}"
    typer.echo(f"{model.folder}: a gallery of {count}, searched by {backend}{order}")
    if backend != "exact":
        recall, queries = gallery_recall(model)
        typer.echo(f"recall of the 10 exact neighbors: {recall:.1%}, on {queries:,} pictures")


def _backend_options(backend: str, given: dict[str, str | None]) -> dict[str, Any]:
    """The options given; a ValueError for one of another backend."""
    options = {name: value for name, value in given.items() if value is not None}
    for name in options:
        if backend not in BACKENDS_OF[name]:
            allowed = " or ".join(BACKENDS_OF[name])
            raise ValueError(
                f"--{name}: expected with --backend {allowed} only, got --backend {backend}"
            )
    return options


def print_thresholds(model: EmbeddingModel) -> None:
    """Print what the decision was calibrated on, and its consequences."""
    from kinspace.evaluation.thresholds import no_thresholds

    found = model.thresholds
    if found is None:
        typer.echo(no_thresholds(model.table))
        return
    typer.echo(f"calibrated on {found.basis}")
    typer.echo(f"with --strangers {found.strangers:g}: {found.at()}")
