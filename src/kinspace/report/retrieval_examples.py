"""Retrieval examples: a query, its nearest picture of its own class and that of another class.

The margin is the similarity to the first minus the similarity to the second; where it is negative,
another class is nearest. The examples are the queries with the largest, the median and the smallest
margins, of different classes if there are enough.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kinspace._core.vectors import unit
from kinspace.embeddings import EmbeddingTable

__all__ = ["RetrievalExample", "retrieval_examples"]

QUERIES = 2000  # at most: a random sample
BLOCK = 2**23  # numbers in a block of similarities


@dataclass(frozen=True)
class RetrievalExample:
    """Rows of the table, and their cosines after training and before it (by the baseline)."""

    kind: str  # best, typical, worst
    query: int
    positive: int
    negative: int
    after: tuple[float, float]  # to the positive, to the negative
    before: tuple[float, float] | None


def retrieval_examples(
    table: EmbeddingTable,
    before: EmbeddingTable | None = None,
    *,
    each: int = 3,
    seed: int = 0,
) -> list[RetrievalExample]:
    """The best, typical and worst queries, `each` of a kind.

    The list is empty if no query has both a picture of its class and one of another.

    >>> x = np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]])
    >>> [example] = retrieval_examples(EmbeddingTable(x, [0, 0, 1]), each=1)[:1]
    >>> example.kind, example.query, example.positive, example.negative
    ('best', 0, 1, 2)
    """
    assert table.labels is not None
    vectors = unit(torch.from_numpy(table.vectors).double())
    labels = torch.from_numpy(table.labels)
    rows = np.random.default_rng(seed).permutation(len(table))[:QUERIES]
    found = _nearest_of_each(vectors, labels, torch.from_numpy(np.sort(rows)))
    if not len(found[0]):
        return []
    queries, positives, negatives = (part.numpy() for part in found)
    after = [_cosines(vectors, queries, other) for other in (positives, negatives)]
    earlier = None
    if before is not None:
        plain = unit(torch.from_numpy(before.vectors).double())
        earlier = [_cosines(plain, queries, other) for other in (positives, negatives)]
    margins = after[0] - after[1]
    middle = np.argsort(abs(margins - np.median(margins)), kind="stable")
    order = np.argsort(margins, kind="stable")
    examples: list[RetrievalExample] = []
    for kind, places in (("best", order[::-1]), ("typical", middle), ("worst", order)):
        examples += [
            RetrievalExample(
                kind,
                int(queries[at]),
                int(positives[at]),
                int(negatives[at]),
                (float(after[0][at]), float(after[1][at])),
                None if earlier is None else (float(earlier[0][at]), float(earlier[1][at])),
            )
            for at in _varied(places, table.labels[queries], each)
        ]
    return examples


def _nearest_of_each(
    vectors: Tensor, labels: Tensor, rows: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The queries that have both, and their nearest row of the same class and of another."""
    kept = []
    for part in rows.split(max(1, BLOCK // len(vectors))):
        table = vectors[part] @ vectors.T
        same = labels[part, None] == labels
        own = same.clone()
        own[torch.arange(len(part)), part] = False
        near = table.masked_fill(~own, -torch.inf).max(1)
        far = table.masked_fill(same, -torch.inf).max(1)
        both = near.values.isfinite() & far.values.isfinite()
        kept.append((part[both], near.indices[both], far.indices[both]))
    queries, positives, negatives = (torch.cat(parts) for parts in zip(*kept, strict=True))
    return queries, positives, negatives


def _cosines(
    vectors: Tensor, first: NDArray[np.int64], second: NDArray[np.int64]
) -> NDArray[np.float64]:
    found: NDArray[np.float64] = (vectors[first] * vectors[second]).sum(1).numpy()
    return found


def _varied(places: NDArray[np.int64], labels: NDArray[np.int64], each: int) -> list[int]:
    """The first `each` positions of different classes; if they are too few, the next ones too."""
    _, first = np.unique(labels[places], return_index=True)
    chosen = places[np.sort(first)][:each].tolist()
    rest = (place for place in places.tolist() if place not in chosen)
    return [*chosen, *(place for place, _ in zip(rest, range(each - len(chosen)), strict=False))]
