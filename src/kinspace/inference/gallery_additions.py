"""Pictures of a data set into a gallery, in parts that are on the disk one after another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinspace._core import checks
from kinspace.data.dataset import Dataset
from kinspace.data.load import load_dataset
from kinspace.embeddings import EmbeddingTable, picture_ids
from kinspace.inference.dataset_embedding import embed_dataset
from kinspace.inference.loader import load
from kinspace.inference.model import EmbeddingModel
from kinspace.search.class_votes import Added

__all__ = ["AddedPictures", "add_pictures"]

PART = 1024  # pictures that are embedded and then written


@dataclass(frozen=True)
class AddedPictures:
    """What `add_pictures` has done.

    classes: what was added to each class, and the class nearest to it; none in a gallery without
    classes. count: pictures added. present: pictures that the gallery had already.
    """

    classes: tuple[Added, ...]
    count: int
    present: int


def add_pictures(
    model: EmbeddingModel | str | Path,
    data: Any,
    *,
    label: str | None = None,
    part: int = PART,
    batch_size: int = 64,
    workers: int = 0,
    progress: Callable[[int, int], object] | None = None,
) -> AddedPictures:
    """Add the pictures of a data set to the gallery of a run, of new classes too.

    Files that are in the gallery are left out, as are pictures without a file of their own whose
    name is there: the same call goes on after an interruption. Every `part` pictures are in the
    journal of the gallery before the next are embedded. At the end the thresholds are set anew.

    data: as for `load_dataset`. label: the class of all pictures; by default the data set has one
    for each. progress: called with the pictures done and all.

    >>> add_pictures("runs/moths-nra-1", "new/").count  # doctest: +SKIP
    24
    """
    model = model if isinstance(model, EmbeddingModel) else load(model)
    checks.integer("part", part, at_least=1)
    dataset = load_dataset(data)
    before = model.table
    names = _class_names(dataset, before, label)
    new = _not_in(before, dataset)
    vectors: list[NDArray[Any]] = []
    assert model.gallery is not None
    ids = picture_ids(dataset.pictures)
    for at in range(0, len(new), part):
        places = new[at : at + part]
        table = embed_dataset(model, dataset.subset(places), batch_size=batch_size, workers=workers)
        if table.dim > before.dim:
            table = table.truncated(before.dim)
        table = replace(table, ids=tuple(ids[place] for place in places))
        model.gallery.append(_labeled(table, names and [names[place] for place in places]))
        vectors.append(table.vectors)
        if progress is not None:
            progress(min(at + part, len(new)), len(new))
    classes: tuple[Added, ...] = ()
    if names is not None:
        if vectors:
            added = [names[place] for place in new]
            classes = model.nearest_classes(before, np.concatenate(vectors), added)
        model.calibrate()  # also if all were there: an earlier call may have ended before this
        model.save_thresholds()
    return AddedPictures(classes, len(new), len(dataset) - len(new))


def _class_names(dataset: Dataset, gallery: EmbeddingTable, label: str | None) -> list[str] | None:
    """The class of each picture; None for a gallery without classes."""
    if gallery.labels is None:
        if label is not None:
            raise ValueError("label: expected none for a gallery without classes, got one")
        return None
    if gallery.class_names is None:
        raise ValueError("add: expected a gallery with class names, got one with numbers alone")
    if label is not None:
        if not label:
            raise ValueError("label: expected the name of a class, got an empty one")
        return [label] * len(dataset)
    if not dataset.labeled:
        raise ValueError(
            f"{dataset.name}: expected pictures with classes, as the gallery has them: one folder "
            "a class, or a table with a column of classes; or give all one class: --label NAME"
        )
    return [dataset.class_names[place] for place in dataset.labels.tolist()]


def _not_in(gallery: EmbeddingTable, dataset: Dataset) -> list[int]:
    """The places of the pictures that the gallery does not have."""
    files, ids = set(gallery.paths or ()) - {""}, set(gallery.ids)
    known = EmbeddingTable.from_dataset(dataset, np.zeros((len(dataset), 1)))
    if known.paths is not None:
        return [place for place, path in enumerate(known.paths) if path not in files]
    return [place for place, name in enumerate(known.ids) if name not in ids]


def _labeled(table: EmbeddingTable, names: list[str] | None) -> EmbeddingTable:
    """The table with these classes, or with none."""
    if names is None:
        return replace(table, labels=None, class_names=None)
    classes = tuple(dict.fromkeys(names))
    labels = np.array([classes.index(name) for name in names])
    return replace(table, labels=labels, class_names=classes)
