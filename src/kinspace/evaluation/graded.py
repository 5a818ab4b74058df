"""Retrieval where relevance is more than "of the same class": several labels, or grades.

The relevance g(q, i) >= 0 of a gallery item for a query comes from

    labels      a 0/1 matrix (rows, labels): the number of labels that both have, or with
                "jaccard" that number over the number of labels that either has
    relevance   given, (queries, gallery)

An item is a match where g > 0. With the ranks of the matches, r_1 < r_2 < ... < r_R, recall@k,
precision@k, map, map@r, r_precision and mrr are those of `kinspace.evaluation.retrieval`, and

    ndcg@k      sum_{i <= k} gain(g_i) / log2(1 + i), over the same sum in the best order

with g_i the relevance of the item at rank i, and gain(g) = g ("linear") or 2^g - 1 ("exponential").
A query without a match counts 0 in recall@k and precision@k and is skipped in the others. Ties are
for the item of lower index. Each query's gallery is sorted as a whole, in blocks of queries.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kinspace._core import checks
from kinspace.evaluation.retrieval import KS, QueryScores
from kinspace.evaluation.similarity import Space, Vectors, in_range, vectors_of

__all__ = ["graded_metrics", "graded_scores", "shared_labels"]

GAINS = ("linear", "exponential")
SHARED = ("count", "jaccard")
BLOCK = {"cpu": 2**22, "cuda": 2**27}  # numbers in a block of similarities


def shared_labels(labels: Tensor, gallery_labels: Tensor, *, shared: str = "count") -> Tensor:
    """The relevance (rows, gallery) of rows with 0/1 labels (rows, labels) and (gallery, labels).

    >>> shared_labels(torch.tensor([[1, 1, 0]]), torch.tensor([[1, 1, 0], [1, 0, 1]]))
    tensor([[2., 1.]], dtype=torch.float64)
    >>> shared_labels(torch.tensor([[1, 1, 0]]), torch.tensor([[1, 0, 1]]), shared="jaccard")
    tensor([[0.3333]], dtype=torch.float64)
    """
    checks.choice("shared", shared, SHARED)
    ours, theirs = labels.double(), gallery_labels.double()
    both = ours @ theirs.T
    if shared == "count":
        return both
    either = ours.sum(1, keepdim=True) + theirs.sum(1) - both
    return both / either.clamp(min=1)


@dataclass(frozen=True)
class _Ranked:
    """The relevance of the gallery in the order of each query's similarities, own item left out."""

    rows: Tensor
    relevance: Tensor  # (rows, gallery), -1 where there is no item


def graded_scores(  # noqa: PLR0913 - typed keyword options
    vectors: Vectors,
    labels: Tensor | None = None,
    *,
    relevance: Tensor | None = None,
    ks: Sequence[int] = KS,
    metric: str = "cosine",
    shared: str = "count",
    gain: str = "linear",
    gallery: Vectors | None = None,
    gallery_labels: Tensor | None = None,
    device: str | torch.device | None = None,
) -> QueryScores:
    """The scores of each query (module docstring). Without a gallery: among the other vectors.

    labels, gallery_labels: 0/1 matrices; or relevance (queries, gallery) in place of both.

    >>> x = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    >>> both = torch.tensor([[1, 1], [1, 0], [0, 1]])
    >>> graded_scores(x, both, ks=(1,)).values["ndcg@1"]
    tensor([1., 1., 0.], dtype=torch.float64)
    """
    ks = [checks.integer("ks", int(k), at_least=1) for k in ks]
    checks.choice("gain", gain, GAINS)
    queries = vectors_of(vectors, device=device)
    place = queries.device
    others = queries if gallery is None else vectors_of(gallery, device=place, name="gallery")
    given = _given(labels, relevance, gallery_labels, queries, others, gallery is None)
    names = [f"{what}@{k}" for what in ("recall", "precision", "ndcg") for k in ks]
    names += ["map", "map@r", "r_precision", "mrr", "ndcg"]
    table = torch.zeros(len(names), len(queries), dtype=torch.float64, device=place)
    matches = torch.zeros(len(queries), dtype=torch.int64, device=place)
    for ranked in _ranked(queries, others, given, metric, shared, itself=gallery is None):
        table[:, ranked.rows], matches[ranked.rows] = _measures(ranked.relevance, ks, gain)
    return QueryScores(dict(zip(names, table, strict=True)), matches)


def graded_metrics(  # noqa: PLR0913 - typed keyword options
    vectors: Vectors,
    labels: Tensor | None = None,
    *,
    relevance: Tensor | None = None,
    ks: Sequence[int] = KS,
    metric: str = "cosine",
    shared: str = "count",
    gain: str = "linear",
    gallery: Vectors | None = None,
    gallery_labels: Tensor | None = None,
    device: str | torch.device | None = None,
) -> dict[str, float]:
    """The means of `graded_scores`, with the number of queries and of those without a match.

    >>> x, several = torch.eye(3)[[0, 0, 1]], torch.tensor([[1, 1], [1, 0], [0, 1]])
    >>> found = graded_metrics(x, several, ks=(1,))
    >>> round(found["recall@1"], 3), round(found["ndcg"], 3)
    (1.0, 1.0)
    """
    return graded_scores(
        vectors,
        labels,
        relevance=relevance,
        ks=ks,
        metric=metric,
        shared=shared,
        gain=gain,
        gallery=gallery,
        gallery_labels=gallery_labels,
        device=device,
    ).summary()


def _given(
    labels: Tensor | None,
    relevance: Tensor | None,
    gallery_labels: Tensor | None,
    queries: Tensor,
    others: Tensor,
    itself: bool,
) -> tuple[Tensor, Tensor | None]:
    """The relevance and None, or the labels of queries and gallery, checked."""
    if (labels is None) == (relevance is None):
        raise ValueError(
            "labels: expected a 0/1 matrix, or relevance in its place, got both or none"
        )
    if relevance is not None:
        shape = (len(queries), len(others))
        if relevance.shape != shape or bool((relevance < 0).any()):
            raise ValueError(
                f"relevance: expected numbers of 0 and more of shape {shape}, got shape "
                f"{tuple(relevance.shape)}, the smallest {float(relevance.min()):g}"
            )
        return relevance.to(queries.device).double(), None
    assert labels is not None
    theirs = labels if itself else gallery_labels
    if theirs is None:
        raise ValueError("gallery_labels: expected a 0/1 matrix for the gallery, got None")
    for name, each, rows in (("labels", labels, queries), ("gallery_labels", theirs, others)):
        if each.ndim != 2 or len(each) != len(rows) or bool(((each != 0) & (each != 1)).any()):
            raise ValueError(
                f"{name}: expected a 0/1 matrix with a row for each of {len(rows)} vectors, got "
                f"shape {tuple(each.shape)}"
            )
    return labels.to(queries.device), theirs.to(queries.device)


def _ranked(
    queries: Tensor,
    others: Tensor,
    given: tuple[Tensor, Tensor | None],
    metric: str,
    shared: str,
    *,
    itself: bool,
) -> Iterator[_Ranked]:
    queries, others = in_range(queries, others)
    space = Space(metric, others)
    theirs, ours = space.rows(others), space.rows(queries)
    order = torch.arange(len(others), device=others.device)
    step = max(1, BLOCK.get(others.device.type, BLOCK["cpu"]) // len(others))
    first, second = given
    for at in range(0, len(queries), step):
        part = torch.arange(at, min(at + step, len(queries)), device=queries.device)
        table = space.table(ours, part, theirs, slice(None))
        grades = (
            first[part] if second is None else shared_labels(first[part], second, shared=shared)
        )
        if itself:
            table.scatter_(1, part[:, None], -torch.inf)
            grades = grades.scatter(1, part[:, None], -1.0)
        _, index = space.ordered(table, order.expand_as(table))
        yield _Ranked(part, grades.gather(1, index))


def _measures(relevance: Tensor, ks: Sequence[int], gain: str) -> tuple[Tensor, Tensor]:
    """(measures, rows), in the order of the names in `graded_scores`, and the matches."""
    hits = relevance > 0
    matches = hits.sum(1)
    place = torch.arange(1, relevance.shape[1] + 1, device=relevance.device)
    found = hits.cumsum(1)
    precisions = torch.where(hits, found / place.double(), 0.0)
    grades = relevance.clamp(min=0)
    gains = grades if gain == "linear" else torch.exp2(grades) - 1
    best = gains.sort(1, descending=True).values
    weight = 1 / torch.log2(1 + place.double())
    dcg, ideal = (gains * weight).cumsum(1), (best * weight).cumsum(1)
    last = relevance.shape[1]

    def at(values: Tensor, k: int) -> Tensor:
        return values[:, min(k, last) - 1]

    early = hits & (place <= matches[:, None])
    first = torch.where(hits, place, last + 1).amin(1)
    rows = [(at(found, k) > 0).double() for k in ks]
    rows += [at(found, k).double() / k for k in ks]
    rows += [at(dcg, k) / at(ideal, k) for k in ks]  # 0 / 0 without a match is NaN: skipped
    rows += [precisions.sum(1) / matches, (precisions * early).sum(1) / matches]
    rows += [early.sum(1).double() / matches]
    rows += [torch.where(matches > 0, 1 / first.double(), torch.nan)]
    return torch.stack([*rows, dcg[:, -1] / ideal[:, -1]]), matches
