"""From a run and pictures to its gallery, its thresholds and its search: `kinspace index`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from kinspace.embeddings import EmbeddingTable
from kinspace.run import PARTS, Run, Splits, open_run
from kinspace.search.exact import ExactIndex
from kinspace.search.gallery import Gallery, check_index
from kinspace.search.index import recall_against_exact
from kinspace.search.thresholds import calibrate

if TYPE_CHECKING:  # inference stands on search
    from kinspace.inference.model import EmbeddingModel

__all__ = ["gallery_recall", "index_run"]


def index_run(  # noqa: PLR0913 - the options of `kinspace index`
    run: Run | str | Path,
    data: Any = None,
    *,
    backend: str = "exact",
    options: Mapping[str, Any] | None = None,
    device: str | torch.device | None = None,
    batch_size: int = 64,
    workers: int = 0,
    progress: Callable[[int, int], object] | None = None,
) -> EmbeddingModel:
    """Make a data set the gallery of a run: table, thresholds and index go to the run folder.

    data: by default what the run was trained and tested on. Each of its pictures has the attribute
    part=train, part=validation or part=test, and the thresholds are set on the validation classes.
    Of other data only the table and the index are made; thresholds that are there stay.
    backend, options: one of INDEXES, and the options of its class. batch_size, workers: for reading
    other data; the run's own is taken from `Run.embeddings`.
    """
    from kinspace.inference.dataset_embedding import embed_dataset
    from kinspace.inference.run_embeddings import RunEmbeddings

    run = run if isinstance(run, Run) else open_run(run)
    model, splits = run.model(device), run.splits(data)
    check_index(backend, options or {}, len(splits.whole))
    if splits.own:
        tables = RunEmbeddings(run, splits, device=device, workers=workers, progress=progress)
        table = _with_parts(tables.table("all"), splits)
        if splits.validation is not None:
            model.thresholds = calibrate(table, *(_of_part(table, p) for p in PARTS[1:]))
            model.thresholds.save(run.folder / "threshold.json")
    else:
        table = embed_dataset(
            model, splits.whole, batch_size=batch_size, workers=workers, progress=progress
        )
    model.gallery = Gallery(table, device=model.device)
    if backend != "exact":
        model.gallery.build(run.folder, backend, **(options or {}))
    model.save_gallery()
    return model


def gallery_recall(model: EmbeddingModel, k: int = 10, *, queries: int = 1000) -> tuple[float, int]:
    """The share of the k exact neighbors that the gallery's index finds; the number of queries.

    The queries are evenly spaced pictures of the gallery, about as many as `queries`.
    """
    table = model.table
    exact = ExactIndex(table.dim, device=model.device)
    exact.add(table.vectors, range(len(table)))
    some = table.vectors[:: max(1, len(table) // queries)]
    return recall_against_exact(model.index, exact, some, k), len(some)


def _with_parts(table: EmbeddingTable, splits: Splits) -> EmbeddingTable:
    """The table with an attribute for each part."""
    columns = np.zeros((len(table), len(PARTS)), np.float32)
    for name, part in splits.parts.items():
        columns[part.indices_in(splits.whole).numpy(), PARTS.index(name)] = 1
    before = table.attributes
    return replace(
        table,
        attributes=columns if before is None else np.concatenate([before, columns], 1),
        attribute_names=(*table.attribute_names, *(f"part={name}" for name in PARTS)),
    )


def _of_part(table: EmbeddingTable, name: str) -> NDArray[np.bool_]:
    assert table.attributes is not None
    rows: NDArray[np.bool_] = table.attributes[:, table.attribute_names.index(f"part={name}")] == 1
    return rows
