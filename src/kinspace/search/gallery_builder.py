"""From a run and pictures to its gallery, its thresholds and its search: `kinspace index`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kinspace.data.dataset import Dataset
from kinspace.data.load import load_dataset
from kinspace.embeddings import EmbeddingTable
from kinspace.inference.dataset import Progress, embed_dataset
from kinspace.inference.loading import load
from kinspace.inference.model import Model
from kinspace.search.exact import ExactIndex
from kinspace.search.gallery import Gallery, check_index
from kinspace.search.index import recall_against_exact
from kinspace.search.thresholds import calibrate
from kinspace.training.data_parts import split_names

__all__ = ["gallery_recall", "index_run", "parts_of_run"]

PARTS = ("train", "validation", "test")


def index_run(
    run: Model | str | Path,
    data: Any = None,
    *,
    backend: str = "exact",
    options: Mapping[str, Any] | None = None,
    device: str | torch.device | None = None,
    progress: Progress | None = None,
    **reading: int,
) -> Model:
    """Make a data set the gallery of a run: table, thresholds and index go to the run folder.

    data: by default what the run was trained and tested on. Each of its pictures has the attribute
    part=train, part=validation or part=test, and the thresholds are set on the validation classes.
    Of other data only the table and the index are made; thresholds that are there stay.
    backend, options: one of INDEXES, and the options of its class. reading: batch_size, workers.
    """
    model = run if isinstance(run, Model) else load(run, device)
    dataset = _opened(model, data)
    check_index(backend, options or {}, len(dataset))
    table = embed_dataset(model, dataset, progress=progress, **reading)
    part = parts_of_run(dataset, model.about)
    if part is not None:
        table = _with_parts(table, part)
        if (part == "validation").any():
            model.thresholds = calibrate(table, part == "validation", part == "test")
            model.thresholds.save(model.folder / "threshold.json")
    model.gallery = Gallery(table, device=model.device)
    if backend != "exact":
        model.gallery.build(model.folder, backend, **(options or {}))
    model.save_gallery()
    return model


def gallery_recall(model: Model, k: int = 10, *, queries: int = 1000) -> tuple[float, int]:
    """The share of the k exact neighbors that the gallery's index finds; the number of queries.

    The queries are evenly spaced pictures of the gallery, about as many as `queries`.
    """
    table = model.table
    exact = ExactIndex(table.dim, device=model.device)
    exact.add(table.vectors, range(len(table)))
    some = table.vectors[:: max(1, len(table) // queries)]
    return recall_against_exact(model.index, exact, some, k), len(some)


def _opened(model: Model, data: Any) -> Dataset:
    """The data without the pictures that the run left out."""
    try:
        dataset = load_dataset(model.about["data"] if data is None else data)
    except ValueError as error:
        if data is not None:
            raise
        raise ValueError(
            f"{error}\nthe run's own data is not where it was; say where it is: "
            f"kinspace index {model.folder} DATA"
        ) from None
    bad = {name for name, _ in model.about.get("skipped", [])}
    good = [i for i in range(len(dataset)) if not bad or dataset.pictures.name(i) not in bad]
    return dataset if len(good) == len(dataset) else dataset.subset(good)


def parts_of_run(dataset: Dataset, about: Mapping[str, Any]) -> NDArray[np.str_] | None:
    """The part of the run each picture was in; None where this is not the run's data.

    It is where the run's split cuts it into parts of the same classes and sizes.
    """
    fraction = about["recipe"].get("validation", {}).get("fraction", 0)
    try:
        cut = split_names(dataset, about["split"], validation=fraction, seed=about["seed"])
    except ValueError:
        return None
    parts = {name: part for name, part in zip(PARTS, cut, strict=True) if part is not None}
    classes = {name: list(part.class_names) for name, part in parts.items()}
    sizes = {name: len(part) for name, part in parts.items()}
    if classes != about["classes"] or sizes != about["pictures"]:
        return None
    found = np.full(len(dataset), "", dtype="<U10")
    for name, part in parts.items():
        found[part.indices_in(dataset).numpy()] = name
    return found


def _with_parts(table: EmbeddingTable, part: NDArray[np.str_]) -> EmbeddingTable:
    names = tuple(f"part={name}" for name in PARTS)
    columns = np.stack([part == name for name in PARTS], 1).astype(np.float32)
    before = table.attributes
    return replace(
        table,
        attributes=columns if before is None else np.concatenate([before, columns], 1),
        attribute_names=(*table.attribute_names, *names),
    )
