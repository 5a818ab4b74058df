"""The trouble that an embedding reveals, in words and numbers: what `summarize` lists."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from torch import Tensor

from kinspace.embeddings import EmbeddingTable
from kinspace.evaluation.data_problems import (
    Duplicate,
    confused_classes,
    hidden_groups,
    near_duplicates,
    suspect_labels,
)
from kinspace.evaluation.neighbors import nearest

__all__ = ["findings"]

NEIGHBORS = 10  # that a label is judged by
LISTED = 50  # of each kind; the rest is counted
SHOWN = 6  # samples of a hidden group
COPIES = (0.99, 0.999, 0.9999, 0.99999)  # similarities: the first that few enough pairs have


def findings(
    table: EmbeddingTable,
    vectors: Tensor,
    notes: list[str],
    *,
    train: tuple[EmbeddingTable, Tensor] | None = None,
    metric: str = "cosine",
    seed: int = 0,
) -> dict[str, Any]:
    """Suspect labels, confused classes, hidden groups and copies, by the names of the table.

    vectors: the table's, on the device to compute on. train: the part trained on, in which copies
    are looked for; without, they are looked for within the table.

    >>> import torch
    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.1, 1.0]])
    >>> found = findings(EmbeddingTable(x, [0, 0, 1, 1]), x, [])
    >>> found["suspect_count"], found["duplicate_count"], found["duplicates_within"]
    (0, 2, 'test')
    """
    name, labels = table.class_name, table.labels
    near = nearest(vectors, NEIGHBORS, metric=metric)[1]
    suspects = suspect_labels(vectors, labels, metric=metric, neighbors=near)
    confused = confused_classes(vectors, labels, limit=LISTED, metric=metric, neighbors=near)
    groups = hidden_groups(vectors, labels, seed=seed, metric=metric)
    return {
        "suspects": [
            {
                "index": one.index,
                "id": table.ids[one.index],
                "class": name(one.label),
                "suggested": name(one.suggested),
                "own": one.own,
                "other": one.other,
            }
            for one in suspects[:LISTED]
        ],
        "suspect_count": len(suspects),
        "confused": [
            asdict(one) | {"first": name(one.first), "second": name(one.second)} for one in confused
        ],
        "hidden": [
            {
                "class": name(one.label),
                "sizes": [len(group) for group in one.groups],
                "indices": [group[:SHOWN].tolist() for group in one.groups],
            }
            for one in groups[:LISTED]
        ],
        "hidden_count": len(groups),
        **_copies(table, vectors, notes, train, metric),
    }


def _copies(
    table: EmbeddingTable,
    vectors: Tensor,
    notes: list[str],
    train: tuple[EmbeddingTable, Tensor] | None,
    metric: str,
) -> dict[str, Any]:
    """Pairs almost the same: of a test and a training picture, or of two test pictures."""
    other, theirs = (table, None) if train is None else train
    found: list[Duplicate] = []
    similarity = None
    for wanted in COPIES if metric == "cosine" else ():
        try:
            found = near_duplicates(vectors, theirs, similarity=wanted)
        except ValueError:  # so many that they cannot be copies
            continue
        similarity = wanted
        break
    if similarity is None:
        why = "too many pairs are as good as the same" if metric == "cosine" else "cosines only"
        notes.append(f"duplicates: not looked for, {why}")
    return {
        "duplicates": [
            {
                "first": one.first,
                "second": one.second,
                "first_id": table.ids[one.first],
                "second_id": other.ids[one.second],
                "similarity": one.similarity,
            }
            for one in found[:LISTED]
        ],
        "duplicate_count": len(found),
        "duplicate_similarity": similarity,
        "duplicates_within": "test" if train is None else "train",
    }
