"""The ranks of all matches of all queries, without sorting and without a table of all pairs.

The rank of a match p of the query q is one more than the number of gallery items nearer to q, or as
near and of lower index. All retrieval measures are functions of these ranks. They are counted in
tiles: a tile of float32 similarities is compared with the similarity of each match, which is known
exactly beforehand; what lies within the bound of the float32 error is computed again exactly (see
`kinspace.evaluation.rank_counts`). Counts of tiles add up, so the tile size changes nothing.

Queries and gallery are ordered by the size of their class, so that the queries of a tile have about
as many matches. If the queries are the gallery, a tile serves both of its sides: half the products.
Where a query has many matches, the tile is sorted and the matches are searched in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from kinspace.evaluation.rank_counts import Ranking, Tile
from kinspace.evaluation.similarity import Space, in_range

__all__ = ["Ranked", "match_ranks"]

BLOCK = {"cpu": 1024, "cuda": 8192}  # rows and columns of a tile
WIDE = 8  # times as many columns where tiles are sorted
KEPT = 2**24  # matches of all queries up to which all counts are kept at a time


@dataclass(frozen=True)
class Ranked:
    """Ranks from 1 of the matches of some queries, ascending, then 0 to fill up."""

    queries: Tensor  # (queries,) their places among all queries
    ranks: Tensor  # (queries, most matches)
    matches: Tensor  # (queries,)


@dataclass(frozen=True)
class _Layout:
    """Queries and gallery in the order of their classes' sizes."""

    queries: Tensor  # (queries,) the index of each place
    gallery: Tensor
    first: Tensor  # (queries,) where the class begins in the gallery
    sizes: Tensor  # (queries,) how many are in it, the query itself included
    itself: Tensor  # (queries,) own place in the gallery, -1 without


def _layout(wanted: Tensor, labels: Tensor, gallery_labels: Tensor, itself: bool) -> _Layout:
    count = int(torch.maximum(labels.max(), gallery_labels.max())) + 1
    sizes = gallery_labels.bincount(minlength=count)
    by_size = sizes.argsort(stable=True)
    place = torch.empty_like(by_size)
    place[by_size] = torch.arange(count, device=by_size.device)
    gallery = place[gallery_labels].argsort(stable=True)
    queries = wanted[place[labels[wanted]].argsort(stable=True)]
    ends = sizes[by_size].cumsum(0)
    classes = labels[queries]
    first = (ends - sizes[by_size])[place[classes]]
    own = torch.full_like(queries, -1)
    if itself:
        places = torch.empty_like(gallery)
        places[gallery] = torch.arange(len(gallery), device=gallery.device)
        own = places[queries]
    return _Layout(queries, gallery, first, sizes[classes], own)


def match_ranks(
    vectors: Tensor,
    labels: Tensor,
    gallery: tuple[Tensor, Tensor] | None = None,
    *,
    metric: str = "cosine",
    queries: range | None = None,
    block: int | None = None,
) -> Iterator[Ranked]:
    """The ranks of the matches of each query, some queries at a time, in no certain order.

    labels: 0, 1, ...; gallery: its vectors and labels, None for the vectors themselves without the
    query; queries: of which rows, by default all.

    >>> x = torch.tensor([[0.0, 1.0], [1.0, 0.1], [0.1, 1.0]])
    >>> [ranked] = match_ranks(x, torch.tensor([0, 0, 1]))
    >>> ranked.queries, ranked.ranks[:, 0], ranked.matches
    (tensor([2, 0, 1]), tensor([0, 2, 2]), tensor([0, 1, 1]))
    """
    others, other_labels = (vectors, labels) if gallery is None else gallery
    chosen = range(len(vectors)) if queries is None else queries
    if not len(chosen):
        return
    wanted = torch.arange(chosen.start, chosen.stop, device=vectors.device)
    layout = _layout(wanted, labels, other_labels, gallery is None)
    vectors, others = in_range(vectors, others)
    space = Space(metric, others)
    rows = space.rows(others[layout.gallery])
    both = gallery is None and len(wanted) == len(vectors)
    asking = rows if both else space.rows(vectors[layout.queries])
    ranking = Ranking(space, asking, rows, layout.gallery)
    size = block or BLOCK.get(vectors.device.type, BLOCK["cpu"])
    few = int(layout.sizes.max()) <= ranking.many and int(layout.sizes.sum()) <= KEPT
    walk = _halves if both and few else _rows
    for tile in walk(ranking, layout, size):
        yield _ranked(tile, layout)


def _make(ranking: Ranking, layout: _Layout, at: int, size: int) -> Tile:
    rows = slice(at, min(at + size, len(layout.queries)))
    return ranking.tile(rows, layout.first[rows], layout.sizes[rows], layout.itself[rows])


def _rows(ranking: Ranking, layout: _Layout, size: int) -> Iterator[Tile]:
    """One tile of queries after another, each against the whole gallery."""
    for at in range(0, len(layout.queries), size):
        tile = _make(ranking, layout, at, size)
        columns = size * WIDE if tile.ahead.shape[1] > ranking.many else size
        for begin in range(0, len(layout.gallery), columns):
            end = min(begin + columns, len(layout.gallery))
            table = ranking.products(tile.rows, slice(begin, end))
            ranking.take(tile, table, slice(begin, end))
        ranking.settle(tile)
        yield tile


def _halves(ranking: Ranking, layout: _Layout, size: int) -> Iterator[Tile]:
    """Queries that are the gallery: each table, and the same on its side."""
    count = len(layout.queries)
    tiles = [_make(ranking, layout, at, size) for at in range(0, count, size)]
    for number, upper in enumerate(tiles):
        for left in tiles[number:]:
            table = ranking.products(upper.rows, left.rows)
            if left is not upper:
                ranking.take(left, ranking.on_its_side(table), upper.rows)
            ranking.take(upper, table, left.rows)
        yield upper


def _ranked(tile: Tile, layout: _Layout) -> Ranked:
    count = tile.rows.stop - tile.rows.start
    real = tile.real[:count]
    last = torch.iinfo(torch.int64).max
    ranks = (tile.ahead[:count] + 1).masked_fill_(~real, last).sort(dim=1).values
    return Ranked(layout.queries[tile.rows], ranks.masked_fill_(ranks == last, 0), real.sum(1))
