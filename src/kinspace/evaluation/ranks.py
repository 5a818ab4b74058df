"""The ranks of all matches of all queries, without sorting and without a table of all pairs.

The rank of a match of a query is one more than the number of gallery items that are nearer to the
query, or as near and of lower index. All retrieval measures are functions of these ranks.
`kinspace.evaluation.rank_counter` counts them in blocks of queries by blocks of the gallery; the
counts add up, so the block size does not change the result.

Queries and gallery are ordered by the size of their class, so that the queries of a block have
about as many matches. If the queries are the gallery, each table of similarities is used twice, as
it is and transposed, which halves the products. Where a query has many matches, the table is sorted
and the matches are searched in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from kinspace.evaluation.rank_counter import QueryBlock, RankCounter
from kinspace.evaluation.similarity import Space, in_range

__all__ = ["Ranked", "match_ranks"]

BLOCK = {"cpu": 1024, "cuda": 8192}  # rows and columns of a table of similarities
WIDE = 8  # times as many columns where tables are sorted
KEPT = 2**24  # matches of all queries up to which the counts of all blocks are kept at a time


@dataclass(frozen=True)
class Ranked:
    """The ranks of the matches of some queries: from 1, ascending, padded with 0."""

    queries: Tensor  # (queries,) their rows among all queries
    ranks: Tensor  # (queries, most matches)
    matches: Tensor  # (queries,)


@dataclass(frozen=True)
class _Layout:
    """Queries and gallery in the order of their classes' sizes."""

    queries: Tensor  # (queries,) the index of each position
    gallery: Tensor
    first: Tensor  # (queries,) where the class begins in the gallery
    sizes: Tensor  # (queries,) how many are in it, the query itself included
    itself: Tensor  # (queries,) own position in the gallery, -1 without


def _layout(
    wanted: Tensor, labels: Tensor, gallery_labels: Tensor, itself: Tensor | None
) -> _Layout:
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
    if itself is not None:
        places = torch.empty_like(gallery)
        places[gallery] = torch.arange(len(gallery), device=gallery.device)
        rows = itself[queries]
        own = torch.where(rows >= 0, places[rows.clamp(min=0)], own)
    return _Layout(queries, gallery, first, sizes[classes], own)


def match_ranks(
    vectors: Tensor,
    labels: Tensor,
    gallery: tuple[Tensor, Tensor] | None = None,
    *,
    metric: str = "cosine",
    itself: Tensor | None = None,
    queries: range | None = None,
    block: int | None = None,
) -> Iterator[Ranked]:
    """The ranks of the matches of each query, some queries at a time, in no particular order.

    labels: 0, 1, ...; gallery: its vectors and labels, by default the other vectors; itself: the
    row of each query in the gallery, which is left out, -1 without; queries: the rows to rank for,
    by default all; block: rows and columns of a table of similarities.

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
    own = torch.arange(len(vectors), device=vectors.device) if gallery is None else itself
    layout = _layout(wanted, labels, other_labels, own)
    vectors, others = in_range(vectors, others)
    space = Space(metric, others)
    rows = space.rows(others[layout.gallery])
    both = gallery is None and len(wanted) == len(vectors)
    query_rows = rows if both else space.rows(vectors[layout.queries])
    counter = RankCounter(space, query_rows, rows, layout.gallery)
    size = block or BLOCK.get(vectors.device.type, BLOCK["cpu"])
    few = int(layout.sizes.max()) <= counter.most_compared and int(layout.sizes.sum()) <= KEPT
    blocks = _symmetric_blocks if both and few else _blocks
    for counted in blocks(counter, layout, size):
        yield _ranked(counted, layout)


def _query_block(counter: RankCounter, layout: _Layout, at: int, size: int) -> QueryBlock:
    rows = slice(at, min(at + size, len(layout.queries)))
    return counter.query_block(rows, layout.first[rows], layout.sizes[rows], layout.itself[rows])


def _blocks(counter: RankCounter, layout: _Layout, size: int) -> Iterator[QueryBlock]:
    """One block of queries after another, each against the whole gallery."""
    for at in range(0, len(layout.queries), size):
        block = _query_block(counter, layout, at, size)
        columns = size * WIDE if block.nearer.shape[1] > counter.most_compared else size
        for begin in range(0, len(layout.gallery), columns):
            end = min(begin + columns, len(layout.gallery))
            table = counter.products(block.rows, slice(begin, end))
            counter.add(block, table, slice(begin, end))
        counter.finish(block)
        yield block


def _symmetric_blocks(counter: RankCounter, layout: _Layout, size: int) -> Iterator[QueryBlock]:
    """Queries that are the gallery: each table serves its rows and, transposed, its columns."""
    count = len(layout.queries)
    blocks = [_query_block(counter, layout, at, size) for at in range(0, count, size)]
    for number, block in enumerate(blocks):
        for other in blocks[number:]:
            table = counter.products(block.rows, other.rows)
            if other is not block:
                counter.add(other, counter.transposed(table), block.rows)
            counter.add(block, table, other.rows)
        yield block


def _ranked(block: QueryBlock, layout: _Layout) -> Ranked:
    count = block.rows.stop - block.rows.start
    real = block.real[:count]
    last = torch.iinfo(torch.int64).max
    ranks = (block.nearer[:count] + 1).masked_fill_(~real, last).sort(dim=1).values
    return Ranked(layout.queries[block.rows], ranks.masked_fill_(ranks == last, 0), real.sum(1))
