"""Problems in the data that embeddings reveal.

    suspect_labels      pictures whose neighbors are of one other class
    near_duplicates     pairs of pictures that are almost the same
    confused_classes    pairs of classes whose pictures are nearest neighbors of each other
    hidden_groups       classes that are several groups

`data_problems` runs all four on a table and lists what they find by name, for `summarize`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kinspace._core import checks
from kinspace._core.vectors import unit
from kinspace.clustering.kmeans import class_kmeans
from kinspace.embeddings import EmbeddingTable
from kinspace.evaluation.similarity import (
    Labels,
    Space,
    Vectors,
    in_range,
    labels_of,
    nearest,
    vectors_of,
)

__all__ = [
    "ConfusedPair",
    "Duplicate",
    "HiddenGroups",
    "SuspectLabel",
    "confused_classes",
    "data_problems",
    "duplicate_pairs",
    "hidden_groups",
    "near_duplicates",
    "suspect_labels",
]

BLOCK = {"cpu": 2**23, "cuda": 2**28}  # numbers in a block of similarities
ROWS = 4096  # samples whose neighbors vote at a time
NEIGHBORS = 10  # that vote on a label
LISTED = 50  # of each kind; the others are only counted
SHOWN = 6  # samples of a hidden group
COPY_SIMILARITIES = (0.99, 0.999, 0.9999, 0.99999)  # the first that few enough pairs reach


@dataclass(frozen=True)
class SuspectLabel:
    """A sample among neighbors of another class."""

    index: int
    label: Any
    suggested: Any
    own: float  # share of its own label among the neighbors, of the number possible
    other: float  # the same for the suggested class


def suspect_labels(
    vectors: Vectors,
    labels: Labels = None,
    *,
    k: int = 10,
    at_least: float = 0.5,
    metric: str = "cosine",
    neighbors: Tensor | None = None,
) -> list[SuspectLabel]:
    """Samples whose k nearest are of one other class rather than of their own, worst first.

    A class with few samples cannot fill the neighborhood, so shares are of the number it could have
    there; fewer votes than a quarter of k, or than two, are ignored. Samples for which the share of
    the other class is larger by `at_least` or more are listed.
    neighbors: indices of the k nearest of each sample, if they are known already.

    >>> x = np.array([[0.0], [0.1], [0.2], [5.0], [5.1], [5.2], [0.15]])
    >>> y = np.array([0, 0, 0, 1, 1, 1, 1])
    >>> [found.index for found in suspect_labels(x, y, k=3, metric="euclidean")]
    [6]
    """
    tensor = vectors_of(vectors)
    names, numbers = np.unique(labels_of(vectors, labels), return_inverse=True)
    sizes = np.bincount(numbers)
    index = nearest(tensor, k, metric=metric)[1] if neighbors is None else neighbors
    found: list[SuspectLabel] = []
    for at in range(0, len(tensor), ROWS):
        own = numbers[at : at + ROWS, None]
        near = numbers[index[at : at + ROWS].cpu().numpy()]  # (rows, k) classes
        votes = (near[:, :, None] == near[:, None, :]).sum(2)
        mine, few = near == own, max(2, -(-near.shape[1] // 4))
        shares = votes / np.minimum(near.shape[1], sizes[near] - mine)
        ours = np.where(mine, shares, 0).max(1, initial=0)
        shares[mine | (votes < few)] = -1
        best = shares.max(1, initial=-1)
        classes = np.where(shares == best[:, None], near, len(names)).min(1, initial=len(names))
        for row in np.flatnonzero((best >= 0) & (best - ours >= at_least)):
            pair = names[own[row, 0]].item(), names[classes[row]].item()
            found.append(SuspectLabel(at + int(row), *pair, float(ours[row]), float(best[row])))
    return sorted(found, key=lambda one: (one.own - one.other, one.index))


@dataclass(frozen=True)
class Duplicate:
    """Two samples that are almost the same."""

    first: int
    second: int
    similarity: float


def near_duplicates(
    vectors: Vectors,
    others: Vectors | None = None,
    *,
    similarity: float = 0.99,
    limit: int = 10_000,
    metric: str = "cosine",
) -> list[Duplicate]:
    """Pairs at least this similar, the most similar first, between two tables or within one.

    similarity: a cosine, or for "euclidean" a negative squared distance. limit: pairs listed; more
    than twice as many candidates are an error, because the threshold is then too low for copies.

    >>> near_duplicates(np.array([[1.0, 0.0]]), np.array([[0.0, 1.0], [2.0, 0.0]]))
    [Duplicate(first=0, second=1, similarity=1.0)]
    """
    checks.number("similarity", similarity)
    tensor = vectors_of(vectors)
    second = tensor if others is None else vectors_of(others, device=tensor.device, name="others")
    tensor, second = in_range(tensor, second)
    space = Space(metric, second)
    columns = space.rows(second)
    rows = columns if others is None else space.rows(tensor)
    wanted = torch.full((len(rows),), similarity, dtype=torch.float64, device=tensor.device)
    cut, margin = space.screen(rows.length, wanted)
    low = (cut - margin).float()
    found: list[Duplicate] = []
    step = max(1, BLOCK.get(tensor.device.type, BLOCK["cpu"]) // len(columns))
    for at in range(0, len(rows), step):
        part = slice(at, at + step)
        begin = at if others is None else 0  # within one table a pair is looked at once
        table = rows.fast[part] @ columns.fast[begin:].T
        if columns.bias is not None:
            table += columns.bias[begin:]
        near = table >= low[part, None]
        row, column = (near.triu_(1) if others is None else near).nonzero().T
        column += begin
        if len(found) + len(row) > 2 * limit:
            raise ValueError(
                f"similarity: expected at most {limit} pairs, got more from {similarity} on; "
                "raise it"
            )
        exact = space.pairs(rows, row + at, columns, column)
        kept = exact >= similarity - space.slack(exact)
        triples = zip(
            (row + at)[kept].tolist(), column[kept].tolist(), exact[kept].tolist(), strict=True
        )
        found += [Duplicate(*triple) for triple in triples]
    found.sort(key=lambda one: (-one.similarity, one.first, one.second))
    return found[:limit]


@dataclass(frozen=True)
class ConfusedPair:
    """Two classes whose samples are nearest neighbors of each other."""

    first: Any
    second: Any
    mistakes: int  # samples of either whose nearest is of the other
    share: float  # of the samples of both


def confused_classes(
    vectors: Vectors,
    labels: Labels = None,
    *,
    limit: int = 50,
    metric: str = "cosine",
    neighbors: Tensor | None = None,
) -> list[ConfusedPair]:
    """The pairs of classes that nearest neighbors confuse most often, worst first.

    neighbors: indices of the nearest of each sample, (samples, 1 or more), if known already.

    >>> x, y = np.array([[0.0], [0.1], [1.0], [1.2], [9.0]]), np.array([0, 1, 0, 0, 2])
    >>> confused_classes(x, y, metric="euclidean", limit=1)
    [ConfusedPair(first=0, second=1, mistakes=2, share=0.5)]
    """
    names, numbers = np.unique(labels_of(vectors, labels), return_inverse=True)
    tensor = vectors_of(vectors)
    if len(names) < 2:
        return []
    index = nearest(tensor, 1, metric=metric)[1] if neighbors is None else neighbors
    found = numbers[index[:, 0].cpu().numpy()]
    wrong = found != numbers
    low, high = np.minimum(found, numbers)[wrong], np.maximum(found, numbers)[wrong]
    cells, mistakes = np.unique(low * len(names) + high, return_counts=True)
    sizes = np.bincount(numbers)
    low, high = cells // len(names), cells % len(names)
    order = np.lexsort((cells, -mistakes / (sizes[low] + sizes[high]), -mistakes))[:limit]
    return [
        ConfusedPair(
            names[low[i]].item(),
            names[high[i]].item(),
            int(mistakes[i]),
            float(mistakes[i] / (sizes[low[i]] + sizes[high[i]])),
        )
        for i in order
    ]


@dataclass(frozen=True, eq=False)
class HiddenGroups:
    """A class that is several groups, their samples by size, the largest first."""

    label: Any
    groups: tuple[NDArray[np.int64], ...]


def hidden_groups(
    vectors: Vectors,
    labels: Labels = None,
    *,
    max_groups: int = 8,
    metric: str = "cosine",
    seed: int = 0,
) -> list[HiddenGroups]:
    """Classes in which `class_kmeans` finds several modes, those with most groups first.

    >>> x = np.array([[0.0], [0.1], [0.2], [0.3], [9.0], [9.1], [9.2], [9.3], [5.0], [5.1]])
    >>> [found] = hidden_groups(x, np.array([3] * 8 + [4] * 2), metric="euclidean")
    >>> found.label, [group.tolist() for group in found.groups]
    (3, [[0, 1, 2, 3], [4, 5, 6, 7]])
    """
    tensor = vectors_of(vectors)
    tensor = unit(tensor) if metric == "cosine" else tensor
    names, numbers = np.unique(labels_of(vectors, labels), return_inverse=True)
    classes = torch.from_numpy(numbers.astype(np.int64)).to(tensor.device)
    found = class_kmeans(tensor, classes, "auto", max_clusters=max_groups, seed=seed)
    clusters = found.clusters.cpu().numpy()
    order = np.argsort(clusters, kind="stable")
    members = np.split(order, np.bincount(clusters).cumsum()[:-1])
    owners = found.cluster_labels.cpu().numpy()
    listed = []
    for label in np.flatnonzero(np.bincount(owners) > 1):
        groups = [members[cluster] for cluster in np.flatnonzero(owners == label)]
        listed.append(
            HiddenGroups(names[label].item(), tuple(sorted(groups, key=lambda g: -len(g))))
        )
    return sorted(listed, key=lambda one: -len(one.groups))


def data_problems(
    table: EmbeddingTable,
    vectors: Tensor,
    notes: list[str],
    *,
    train: tuple[EmbeddingTable, Tensor] | None = None,
    metric: str = "cosine",
    seed: int = 0,
) -> dict[str, Any]:
    """All four kinds of problems in a labeled table, in plain values with the table's names.

    vectors: those of the table, on the device to compute on. notes: a list to which a note is added
    if duplicates cannot be searched. train: the training part and its vectors; duplicates are
    pairs of a row of the table and one of `train`, by default pairs within the table.

    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.1, 1.0]])
    >>> found = data_problems(EmbeddingTable(x, [0, 0, 1, 1]), x, [])
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
        **duplicate_pairs(table, vectors, notes, train=train, metric=metric),
    }


def duplicate_pairs(
    table: EmbeddingTable,
    vectors: Tensor,
    notes: list[str],
    *,
    train: tuple[EmbeddingTable, Tensor] | None = None,
    metric: str = "cosine",
) -> dict[str, Any]:
    """Near-duplicates, at the first similarity that does not have too many pairs.

    The arguments are those of `data_problems`; the table needs no classes.

    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> duplicate_pairs(EmbeddingTable(x), x, [])["duplicate_count"]
    1
    """
    other, theirs = (table, None) if train is None else train
    found: list[Duplicate] = []
    similarity = None
    for wanted in COPY_SIMILARITIES if metric == "cosine" else ():
        try:
            found = near_duplicates(vectors, theirs, similarity=wanted)
        except ValueError:  # too many pairs to be copies
            continue
        similarity = wanted
        break
    if similarity is None:
        why = (
            "too many pairs are nearly identical"
            if metric == "cosine"
            else "they are only searched by cosine"
        )
        notes.append(f"duplicates: not searched, because {why}")
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
