"""The gallery of a run: made of its pictures, opened, and its index built anew.

`kinspace index`, `index --rebuild`, and what changes a gallery without a network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from kinspace._core import checks
from kinspace.embeddings import EmbeddingTable
from kinspace.evaluation.thresholds import DEFAULT_STRANGERS
from kinspace.run import PARTS, Run, Splits, open_run
from kinspace.search.exact import ExactIndex
from kinspace.search.gallery import Gallery
from kinspace.search.gallery_files import GalleryFiles
from kinspace.search.gallery_index import check_index
from kinspace.search.index import recall_against_exact
from kinspace.search.neighbor_order import RERANKINGS

if TYPE_CHECKING:
    from kinspace.inference.model import EmbeddingModel

__all__ = ["gallery_recall", "index_run", "open_gallery", "rebuild_index"]


def open_gallery(run: Run | str | Path) -> Gallery:
    """The gallery of a run without its network, to look at and to change.

    >>> open_gallery("runs/moths-nra-1").remove(["io/3.jpg"])  # doctest: +SKIP
    1
    """
    run = run if isinstance(run, Run) else open_run(run)
    if not run.indexed:
        raise ValueError(
            f"{run.folder}: expected a gallery, got none; make one with: kinspace index "
            f"{run.folder}"
        )
    return Gallery.load(run.folder)


def rebuild_index(
    run: Run | str | Path,
    *,
    backend: str | None = None,
    options: Mapping[str, Any] | None = None,
    rerank: str | None = None,
    device: str | torch.device | None = None,
) -> EmbeddingModel:
    """Build the index of a run's gallery anew from its vectors; nothing is embedded.

    Everything that was added stays. backend, options: one of INDEXES, and the options of its class;
    by default the kind of index that the gallery has. rerank: as for `index_run`; None: as before.
    """
    run = run if isinstance(run, Run) else open_run(run)
    with GalleryFiles(run.folder).lock("kinspace index --rebuild"):
        model = run.model(device, with_gallery=False)
        gallery = Gallery.load(run.folder, model.device, with_index=False)
        given: dict[str, Any] = {**(options or {})}
        if backend is None:
            backend = gallery.backend
            if backend != "faiss":
                given = {"precision": gallery.precision, **given}
            if backend == "milvus" and "milvus" in gallery.address:
                uri, name = gallery.address["milvus"], gallery.address["name"]
                given = {"uri": uri if "://" in uri else run.folder / uri, "name": name, **given}
        check_index(backend, given, len(gallery.table))
        gallery.build(run.folder, backend, **given)
        if rerank is not None:
            gallery.rerank = checks.choice("rerank", rerank, RERANKINGS)
        gallery.save(run.folder)
        model.gallery = gallery
        if model.thresholds is None and model.calibrate() is not None:
            model.save_thresholds()
    return model


def index_run(  # noqa: PLR0913 - the options of `kinspace index`
    run: Run | str | Path,
    data: Any = None,
    *,
    backend: str = "exact",
    options: Mapping[str, Any] | None = None,
    device: str | torch.device | None = None,
    replace_gallery: bool = False,
    truncate_dim: int | None = None,
    rerank: str = "none",
    batch_size: int = 64,
    workers: int = 0,
    strangers: float = DEFAULT_STRANGERS,
    progress: Callable[[int, int], object] | None = None,
) -> EmbeddingModel:
    """Make a data set the gallery of a run: table, thresholds and index go to the run folder.

    data: by default what the run was trained and tested on. Each of its pictures has the attribute
    part=train, part=validation or part=test. strangers: the dial of the thresholds, which are set
    on the classes that the model was not trained on (`EmbeddingModel.calibrate`).
    backend, options: one of INDEXES, and the options of its class. replace_gallery: a gallery that
    is there is replaced, with all that was added to it; without that it is an error. truncate_dim:
    keep the first so many numbers of each vector; queries are truncated alike. rerank: the order in
    which neighbors are shown, one of `RERANKINGS`; classes are decided by cosines in any case.
    batch_size, workers: for reading other data; the run's own is taken from `Run.embeddings`.
    """
    from kinspace.inference.dataset_embedding import embed_dataset
    from kinspace.inference.model import THRESHOLDS
    from kinspace.inference.run_embeddings import RunEmbeddings

    checks.choice("rerank", rerank, RERANKINGS)
    run = run if isinstance(run, Run) else open_run(run)
    with GalleryFiles(run.folder).lock("kinspace index"):
        if run.indexed and not replace_gallery:
            raise ValueError(
                f"{run.folder}: has a gallery; add pictures to it (kinspace add {run.folder} "
                f"DATA), build its index anew (kinspace index {run.folder} --rebuild), or replace "
                "it and all that was added to it: --replace"
            )
        model, splits = run.model(device, with_gallery=False), run.splits(data)
        check_index(backend, options or {}, len(splits.whole))
        if splits.own:
            tables = RunEmbeddings(run, splits, device=device, workers=workers, progress=progress)
            table = _with_parts(tables.table("all"), splits)
        else:
            table = embed_dataset(
                model, splits.whole, batch_size=batch_size, workers=workers, progress=progress
            )
        if truncate_dim is not None:
            table = table.truncated(truncate_dim)
        model.gallery = Gallery(table, device=model.device)
        model.gallery.rerank = rerank
        model.calibrate(strangers)
        if backend != "exact" or options:
            model.gallery.build(run.folder, backend, **(options or {}))
        if run.indexed:  # a gallery never has the thresholds of the one before it
            (run.folder / THRESHOLDS).unlink(missing_ok=True)
            model.save_gallery()
        else:
            model.save_thresholds()
            model.gallery.save(run.folder)
    return model


def gallery_recall(model: EmbeddingModel, k: int = 10, *, queries: int = 1000) -> tuple[float, int]:
    """The share of the k exact neighbors that the gallery's index finds; the number of queries.

    The queries are evenly spaced pictures of the gallery, about as many as `queries`.
    """
    table = model.table
    exact = ExactIndex(table.dim, device=model.device)
    exact.add(table.vectors, model.gallery.keys if model.gallery else range(len(table)))
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
