"""What a gallery shows of its pictures: copies, and labels that look wrong, as rows of a table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kinspace.data.dataset import Dataset
from kinspace.data.pictures import Pictures
from kinspace.embeddings import EmbeddingTable
from kinspace.evaluation.data_problems import suspect_labels
from kinspace.evaluation.duplicate_pictures import find_duplicates
from kinspace.inference.gallery_pictures import table_pictures
from kinspace.run import Run, open_run
from kinspace.search.run_gallery import open_gallery

__all__ = ["DUPLICATES", "LABEL_ERRORS", "gallery_duplicates", "label_errors", "picture_duplicates"]

DUPLICATES = (
    "kind",
    "difference",
    "similarity",
    "first",
    "first_class",
    "second",
    "second_class",
    "first_file",
    "second_file",
)
LABEL_ERRORS = ("id", "class", "suggested", "own", "other", "file")

Row = dict[str, Any]


def gallery_duplicates(
    run: Run | str | Path,
    data: Any = None,
    *,
    workers: int | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> list[Row]:
    """The pairs of copies among the pictures of a gallery, by embedding and by pixels.

    data: where the pictures are, if they are not found. See `find_duplicates`; the columns are
    DUPLICATES.

    >>> gallery_duplicates("runs/moths-nra-1")  # doctest: +SKIP
    []
    """
    run = run if isinstance(run, Run) else open_run(run)
    table = open_gallery(run).table
    pictures = table_pictures(table, run, data)
    if pictures.missing == len(pictures):
        raise ValueError(
            f"{run.folder}: expected the pictures of the gallery, found none; say where they are: "
            "DATA"
        )
    return _rows(pictures, table, workers, progress)


def picture_duplicates(
    dataset: Dataset,
    *,
    workers: int | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> list[Row]:
    """The pairs of copies among the pictures of a data set, by their pixels alone.

    >>> from kinspace.data import digits_dataset
    >>> picture_duplicates(digits_dataset().subset(range(50)))
    []
    """
    table = EmbeddingTable.from_dataset(dataset, [[0.0]] * len(dataset))
    return _rows(dataset.pictures, table, workers, progress, by_embedding=False)


def _rows(
    pictures: Pictures,
    table: EmbeddingTable,
    workers: int | None,
    progress: Callable[[int, int], object] | None,
    *,
    by_embedding: bool = True,
) -> list[Row]:
    vectors = table.vectors if by_embedding else None
    found = find_duplicates(pictures, vectors, workers=workers, progress=progress)
    rows: list[Row] = []
    for pair in found:
        row: Row = {
            "kind": pair.kind,
            "difference": round(pair.difference, 2),
            "similarity": "" if pair.similarity is None else round(pair.similarity, 4),
        }
        for name, place in (("first", pair.first), ("second", pair.second)):
            row[name] = table.ids[place]
            row[f"{name}_class"] = _class_of(table, place)
            row[f"{name}_file"] = table.paths[place] if table.paths else ""
        rows.append({name: row[name] for name in DUPLICATES})
    return rows


def label_errors(table: EmbeddingTable, *, k: int = 10, at_least: float = 0.5) -> list[Row]:
    """The pictures that look like another class than their own, worst first.

    `suspect_labels` says how k and at_least decide; the columns are LABEL_ERRORS. Of pictures that
    the model was trained on fewer are found: it has learned their labels, wrong ones too.

    >>> import numpy as np
    >>> x = np.array([[1, 0], [1, 0.1], [1, 0.2], [1, 0.15], [0, 1], [0.1, 1], [0.2, 1]])
    >>> label_errors(EmbeddingTable(x, [0, 0, 0, 1, 1, 1, 1], class_names=("io", "luna")), k=3)
    [{'id': '3', 'class': 'luna', 'suggested': 'io', 'own': 0.0, 'other': 1.0, 'file': ''}]
    """
    if table.labels is None:
        raise ValueError("label-errors: expected pictures with classes, got some without")
    return [
        {
            "id": table.ids[one.index],
            "class": table.class_name(int(one.label)),
            "suggested": table.class_name(int(one.suggested)),
            "own": round(one.own, 4),
            "other": round(one.other, 4),
            "file": table.paths[one.index] if table.paths else "",
        }
        for one in suspect_labels(table.vectors, table.labels, k=k, at_least=at_least)
    ]


def _class_of(table: EmbeddingTable, row: int) -> str:
    return "" if table.labels is None else table.class_name(int(table.labels[row]))
