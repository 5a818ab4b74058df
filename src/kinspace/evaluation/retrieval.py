"""Retrieval: each query ranks the gallery by similarity, itself left out.

With the ranks r_1 < r_2 < ... < r_R of the R items of the query's class (its matches):

    recall@k      1 if r_1 <= k                          over all queries; no match: 0
    precision@k   |{i: r_i <= k}| / k                    over all queries; no match: 0
    map           1/R sum_i i / r_i                      over queries with a match
    map@r         1/R sum_{i: r_i <= R} i / r_i          over queries with a match
    r_precision   |{i: r_i <= R}| / R                    over queries with a match

and by option (`more`)

    mrr           1 / r_1                                over queries with a match
    map@k         1/min(R, k) sum_{i: r_i <= k} i / r_i  over queries with a match
    ndcg@k        sum_{i: r_i <= k} 1 / log2(1 + r_i) / sum_{i <= min(R, k)} 1 / log2(1 + i)
    ndcg          the same over all ranks

The cumulative match characteristic at k is recall@k (`cumulative_match`: the whole curve).

Items as similar as another have the lower rank if they have the lower index. MAP@R and R-precision
as in Musgrave et al., A metric learning reality check, ECCV 2020. `kinspace.evaluation.ranks` finds
the ranks without sorting.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from kinspace._core import checks
from kinspace.distributed import gather
from kinspace.evaluation.ranks import Ranked, match_ranks
from kinspace.evaluation.similarity import (
    METRICS,
    Labels,
    Vectors,
    class_numbers,
    labels_of,
    vectors_of,
)

__all__ = [
    "MORE",
    "QueryScores",
    "Retrieval",
    "cumulative_match",
    "queries_of",
    "recall_at_k",
    "retrieval_by_roles",
    "retrieval_metrics",
]

KS = (1, 2, 4, 8)
MORE = ("mrr", "map@k", "ndcg@k", "ndcg")  # computed where they are asked for
MATCHED = ("map", "map@r", "r_precision")  # not defined for a query without a match: NaN


@dataclass(frozen=True, eq=False)
class QueryScores:
    """The scores of each query: float64 vectors (queries,), by the name of the measure.

    >>> scores = Retrieval(np.eye(2)[[0, 0, 1]], np.array([0, 0, 1])).scores((1,))
    >>> scores.matches, scores.values["recall@1"], scores.values["map"]
    (tensor([1, 1, 0]), tensor([1., 1., 0.], dtype=torch.float64), tensor([1., 1., nan],
    dtype=torch.float64))
    """

    values: dict[str, Tensor]
    matches: Tensor  # (queries,) R

    def summary(self) -> dict[str, float]:
        """The mean of each measure, the number of queries, and how many have no match."""
        found = {name: _mean(values) for name, values in self.values.items()}
        return found | {"queries": len(self.matches), "no_match": int((self.matches == 0).sum())}

    def by_group(self, groups: NDArray[Any] | Tensor) -> dict[Any, dict[str, float]]:
        """The summary of the queries of each group, for example of each class."""
        array = groups.cpu().numpy() if isinstance(groups, Tensor) else np.asarray(groups)
        if array.shape != (len(self.matches),):
            raise ValueError(
                f"groups: expected shape ({len(self.matches)},), one for each query, "
                f"got {array.shape}"
            )
        names, numbers = np.unique(array, return_inverse=True)
        order = np.argsort(numbers, kind="stable")
        parts = np.split(order, np.bincount(numbers).cumsum()[:-1])
        return {
            name: self.select(part).summary()
            for name, part in zip(names.tolist(), parts, strict=True)
        }

    def by_attribute(
        self, attributes: NDArray[Any] | Tensor, names: Sequence[str] | None = None
    ) -> dict[str, dict[str, float]]:
        """The summary of the queries that have each attribute (value above 1/2)."""
        values = attributes.cpu().numpy() if isinstance(attributes, Tensor) else attributes
        if values.ndim != 2 or len(values) != len(self.matches):
            raise ValueError(
                f"attributes: expected one row for each of {len(self.matches)} queries, "
                f"got shape {values.shape}"
            )
        names = [str(i) for i in range(values.shape[1])] if names is None else names
        having = {name: np.flatnonzero(values[:, i] > 0.5) for i, name in enumerate(names)}
        return {name: self.select(rows).summary() for name, rows in having.items()}

    def select(self, rows: NDArray[Any]) -> QueryScores:
        """The scores of these queries alone."""
        places = torch.as_tensor(rows, device=self.matches.device)
        chosen = {name: values[places] for name, values in self.values.items()}
        return QueryScores(chosen, self.matches[places])


def _mean(values: Tensor) -> float:
    kept = values[~values.isnan()]
    return float(kept.mean()) if len(kept) else math.nan


class Retrieval:
    """Queries and their gallery; `scores` ranks the gallery for all queries or a range of them.

    device: where to compute, by default where the vectors are. Without a gallery each vector is
    searched among the others. rows_in_gallery: for queries that are in the gallery too the row of
    each there, which is left out of its own ranking; -1 for a query that is not in it.
    """

    def __init__(
        self,
        vectors: Vectors,
        labels: Labels = None,
        *,
        metric: str = "cosine",
        gallery: Vectors | None = None,
        gallery_labels: Labels = None,
        rows_in_gallery: Labels = None,
        device: str | torch.device | None = None,
    ) -> None:
        self.metric = checks.choice("metric", metric, METRICS)
        self.vectors = vectors_of(vectors, device=device)
        own = labels_of(vectors, labels)
        place = self.vectors.device
        self.gallery: tuple[Tensor, Tensor] | None = None
        self.itself: Tensor | None = None
        if gallery is None:
            for name, given in (
                ("gallery_labels", gallery_labels),
                ("rows_in_gallery", rows_in_gallery),
            ):
                if given is not None:
                    raise ValueError(f"{name}: expected a gallery with them, got None")
            self.labels = class_numbers(own)[0].to(place)
            return
        others = vectors_of(gallery, device=place, name="gallery")
        if others.shape[1] != self.vectors.shape[1]:
            raise ValueError(
                f"gallery: expected {self.vectors.shape[1]} columns like the vectors, "
                f"got shape {tuple(others.shape)}"
            )
        theirs = labels_of(gallery, gallery_labels, name="gallery_labels")
        numbers = class_numbers(own, theirs)
        self.labels = numbers[0].to(place)
        self.gallery = others, numbers[1].to(place)
        if rows_in_gallery is not None:
            self.itself = _own_rows(rows_in_gallery, self.labels, self.gallery[1])

    def scores(
        self,
        ks: Sequence[int] = KS,
        *,
        more: Sequence[str] = (),
        queries: range | None = None,
        block: int | None = None,
    ) -> QueryScores:
        """The scores of all queries, or of a range of them.

        more: of `MORE`, beside the usual measures. block: rows compared at a time.
        """
        more = [checks.choice("more", name, MORE) for name in more]
        ks = [checks.integer("ks", int(k), at_least=1) for k in ks]
        wanted = range(len(self.vectors)) if queries is None else queries
        if wanted.step != 1 or wanted.start < 0 or wanted.stop > len(self.vectors):
            raise ValueError(
                f"queries: expected a range within 0 .. {len(self.vectors)} by ones, got {queries}"
            )
        if block is not None:
            checks.integer("block", block, at_least=1)
        names = [f"{what}@{k}" for what in ("recall", "precision") for k in ks] + list(MATCHED)
        names += _names_of(more, ks)
        place = self.vectors.device
        table = torch.zeros(len(names), len(wanted), dtype=torch.float64, device=place)
        matches = torch.zeros(len(wanted), dtype=torch.int64, device=place)
        for ranked in match_ranks(
            self.vectors,
            self.labels,
            self.gallery,
            metric=self.metric,
            itself=self.itself,
            queries=wanted,
            block=block,
        ):
            rows = ranked.queries - wanted.start
            found = _scores(ranked, ks)
            table[:, rows] = torch.cat([found, *_more_scores(ranked, ks, more)])
            matches[rows] = ranked.matches
        return QueryScores(dict(zip(names, table, strict=True)), matches)

    def shared_scores(self, ks: Sequence[int] = KS, *, more: Sequence[str] = ()) -> QueryScores:
        """The same scores, with the queries divided among the processes of the group.

        All processes must call it with the same vectors, and all get the scores of all queries.
        """
        if not (dist.is_available() and dist.is_initialized()):
            return self.scores(ks, more=more)
        count, world, rank = len(self.vectors), dist.get_world_size(), dist.get_rank()
        share = range(count * rank // world, count * (rank + 1) // world)
        own = self.scores(ks, more=more, queries=share)
        matches, *values = gather(own.matches, *own.values.values())
        return QueryScores(dict(zip(own.values, values, strict=True)), matches)


def queries_of(roles: Sequence[str] | None) -> NDArray[np.bool_] | None:
    """Which rows are queries, if the data set defines queries and a gallery; else None.

    >>> queries_of(["query", "gallery", "gallery"])
    array([ True, False, False])
    """
    given = np.array(roles or (), dtype=object)
    return given == "query" if {"query", "gallery"} <= set(given.tolist()) else None


def retrieval_by_roles(
    vectors: Tensor, labels: Labels, roles: Sequence[str] | None, *, metric: str = "cosine"
) -> Retrieval:
    """Retrieval with the queries and the gallery of the roles; without roles each row is a query.

    >>> x, y = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]), np.array([0, 0, 1])
    >>> ranked = retrieval_by_roles(x, y, ["query", "gallery", "gallery"])
    >>> ranked.scores([1]).summary()["queries"]
    1
    """
    searching = queries_of(roles)
    if searching is None:
        return Retrieval(vectors, labels, metric=metric)
    numbers = labels_of(vectors, labels)
    rest = np.array(roles, dtype=object) == "gallery"
    return Retrieval(
        vectors[torch.from_numpy(searching).to(vectors.device)],
        numbers[searching],
        metric=metric,
        gallery=vectors[torch.from_numpy(rest).to(vectors.device)],
        gallery_labels=numbers[rest],
    )


def _scores(ranked: Ranked, ks: Sequence[int]) -> Tensor:
    """(measures, queries), in the order of the names in `Retrieval.scores`."""
    ranks, matches = ranked.ranks, ranked.matches[:, None]
    real = ranks > 0
    found = torch.arange(1, ranks.shape[1] + 1, device=ranks.device)
    gains = torch.where(real, found / ranks.clamp(min=1).double(), 0.0)
    early = real & (ranks <= matches)
    hits = [(real & (ranks <= k)).sum(1) for k in ks]
    rows = [hit.clamp(max=1).double() for hit in hits]
    rows += [hit.double() / k for hit, k in zip(hits, ks, strict=True)]
    # cumsum adds in order; the order of a sum, and with it the last digit, depends on the width.
    sums = [values.cumsum(1)[:, -1] for values in (gains, gains * early, early.double())]
    rows += [total / ranked.matches for total in sums]
    return torch.stack(rows)  # 0 / 0 matches is NaN: skipped


def _own_rows(rows: Labels, labels: Tensor, gallery_labels: Tensor) -> Tensor:
    """The row of each query in the gallery, checked."""
    found = torch.as_tensor(rows, device=labels.device)
    if found.shape != labels.shape or found.dtype.is_floating_point or found.dtype == torch.bool:
        raise ValueError(
            f"rows_in_gallery: expected whole numbers of shape ({len(labels)},), one for each "
            f"query, got {found.dtype} of shape {tuple(found.shape)}"
        )
    found = found.long()
    if bool(((found < -1) | (found >= len(gallery_labels))).any()):
        raise ValueError(
            f"rows_in_gallery: expected -1, or a row of the gallery below {len(gallery_labels)}, "
            f"got {int(found.min())} .. {int(found.max())}"
        )
    inside = (found >= 0).nonzero()[:, 0]
    other = inside[gallery_labels[found[inside]] != labels[inside]]
    if len(other):
        query = int(other[0])
        raise ValueError(
            f"rows_in_gallery: expected the row of the query itself, got row {int(found[query])} "
            f"for query {query}, which has another label"
        )
    return found


def _names_of(more: Sequence[str], ks: Sequence[int]) -> list[str]:
    """The names of the further measures: one for each k, or one.

    >>> _names_of(["mrr", "map@k"], [1, 5])
    ['mrr', 'map@1', 'map@5']
    """
    return [
        name.removesuffix("k") + str(k) if name.endswith("@k") else name
        for name in more
        for k in (ks if name.endswith("@k") else [0])
    ]


def _more_scores(ranked: Ranked, ks: Sequence[int], more: Sequence[str]) -> list[Tensor]:
    """(measures, queries) of each of the further measures, in the order of `_names_of`."""
    ranks, matches = ranked.ranks.double(), ranked.matches
    if not more:
        return []
    if not ranks.shape[1]:  # no query here has a match
        return [ranks.new_full((len(_names_of(more, ks)), len(ranks)), math.nan)]
    real = ranks > 0
    found = torch.arange(1, ranks.shape[1] + 1, device=ranks.device)
    gains = torch.where(real, found / ranks.clamp(min=1), 0.0)
    discounted = torch.where(real, 1 / torch.log2(1 + ranks.clamp(min=1)), 0.0)
    ideal = (1 / torch.log2(1 + found.double())).cumsum(0)

    def ndcg(k: int) -> Tensor:
        most = matches.clamp(max=k)
        total = (discounted * (ranks <= k)).cumsum(1)[:, -1]
        return torch.where(most > 0, total / ideal[(most - 1).clamp(min=0)], math.nan)

    def precision(k: int) -> Tensor:
        return (gains * (ranks <= k)).cumsum(1)[:, -1] / matches.clamp(max=k)

    rows = []
    for name in more:
        if name == "mrr":
            rows.append(torch.where(real[:, 0], 1 / ranks[:, 0].clamp(min=1), math.nan))
        elif name == "ndcg":
            rows.append(ndcg(torch.iinfo(torch.int64).max))
        else:
            rows += [(precision if name == "map@k" else ndcg)(k) for k in ks]
    return [torch.stack(rows)]


def cumulative_match(
    vectors: Vectors,
    labels: Labels = None,
    *,
    ranks: int = 20,
    metric: str = "cosine",
    gallery: Vectors | None = None,
    gallery_labels: Labels = None,
) -> NDArray[np.float64]:
    """The cumulative match characteristic: recall@1, recall@2, ... up to this rank, (ranks,).

    >>> x = np.array([[1.0, 0.0], [1.0, 0.1], [0.9, 0.1]])
    >>> cumulative_match(x, np.array([0, 1, 0]), ranks=2).round(3)
    array([0.   , 0.667])
    """
    ks = range(1, checks.integer("ranks", ranks, at_least=1) + 1)
    ranked = Retrieval(
        vectors, labels, metric=metric, gallery=gallery, gallery_labels=gallery_labels
    )
    found = ranked.scores(tuple(ks)).summary()
    return np.array([found[f"recall@{k}"] for k in ks])


def recall_at_k(
    table_or_vectors: Vectors,
    labels: Labels = None,
    ks: Sequence[int] = KS,
    *,
    metric: str = "cosine",
    device: str | torch.device | None = None,
) -> dict[int, float]:
    """The share of queries with an item of their class among the k nearest others.

    labels: may be left out (None) for a table, which has its own.

    >>> recall_at_k(np.array([[1.0, 0.0], [1.0, 0.1], [0.9, 0.1]]), np.array([0, 1, 0]), [1, 2])
    {1: 0.0, 2: 0.6666666666666666}
    """
    scores = Retrieval(table_or_vectors, labels, metric=metric, device=device).scores(ks)
    found = scores.summary()
    return {int(k): found[f"recall@{int(k)}"] for k in ks}


def retrieval_metrics(  # noqa: PLR0913 - typed keyword options
    vectors: Vectors,
    labels: Labels = None,
    *,
    ks: Sequence[int] = KS,
    metric: str = "cosine",
    gallery: Vectors | None = None,
    gallery_labels: Labels = None,
    rows_in_gallery: Labels = None,
    more: Sequence[str] = (),
    device: str | torch.device | None = None,
) -> dict[str, float]:
    """All retrieval measures: recall@k and precision@k for each k, map, map@r, r_precision.

    Also the number of queries, and of those with no match, which map, map@r and r_precision skip
    (NaN if that leaves none). metric: "cosine" or "euclidean". gallery: where to search, by default
    among the vectors themselves, each without itself. rows_in_gallery: for queries that are part of
    a larger gallery the row of each there, -1 for none; it is left out of its own ranking. more:
    further measures, of "mrr", "map@k", "ndcg@k" and "ndcg".

    >>> x = np.array([[0.0], [1.0], [3.0], [3.5]])
    >>> found = retrieval_metrics(x, np.array([0, 0, 1, 0]), ks=(1,), metric="euclidean")
    >>> found["recall@1"], found["no_match"]
    (0.5, 1)
    >>> round(found["map"], 4)  # the ranks are 1 3, 1 3 and 2 3
    0.75
    """
    return (
        Retrieval(
            vectors,
            labels,
            metric=metric,
            gallery=gallery,
            gallery_labels=gallery_labels,
            rows_in_gallery=rows_in_gallery,
            device=device,
        )
        .scores(ks, more=more)
        .summary()
    )
