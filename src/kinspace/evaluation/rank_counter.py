"""Counts, for each match of each query, how many gallery items are nearer to the query.

A match is a gallery item of the query's class. Its exact similarity is computed first. Then the
queries are compared with the gallery block by block: a table of float32 similarities is compared
with the similarity of each match, widened by the bound of the float32 error.

    similarity > high            the item is nearer: counted
    low <= similarity <= high    undecided: the exact similarity is computed
    similarity < low             the item is farther

Undecided pairs are computed one at a time or, where they are many, for whole rows. The counts of
different gallery blocks add up. `kinspace.evaluation.ranks` decides which blocks are compared.

A row of a table is compared with one threshold at a time. The result is one byte of 0 or 1 per
entry. Eight such bytes are read as one int64, and the int64 numbers are added, which adds eight
columns at once and is much faster than a sum of booleans. A byte holds at most 255, so at most 128
numbers are added before the bytes are summed. For many thresholds it is faster to sort the rows and
to search in them (`sort_rows`).
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from kinspace.evaluation.similarity import Rows, Space

__all__ = [
    "QueryBlock",
    "RankCounter",
    "count_above",
    "count_above_numpy",
    "padded_size",
    "sort_rows",
]

BYTES = 8  # of an int64
ADDED = 128  # int64 numbers that are added before a byte could overflow
SORTED = {"cpu": 24, "cuda": 96}  # matches above which sorting a table is faster than comparing
BY_PAIRS = 64  # matches up to which their similarities are computed one by one
PART = {"cpu": 2**20, "cuda": 2**27}  # entries of undecided rows that are processed at a time
CROWDED = 4  # a row with more than 1 / CROWDED of its entries undecided is sorted as a whole
DENSE = 16  # a table with more than 1 / DENSE of its entries undecided is computed as a whole


def padded_size(count: int) -> int:
    """The smallest size from `count` on that can be read as int64 numbers.

    >>> padded_size(5), padded_size(1024), padded_size(1025)
    (8, 1024, 2048)
    """
    unit = BYTES if count <= BYTES * ADDED else BYTES * ADDED
    return -(-count // unit) * unit


def count_above(table: Tensor, high: Tensor, low: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The counts `above` and `at_least`; mask: a bool buffer of the shape of the table.

    >>> table = torch.tensor([[1.0, 2.0, 3.0, 4.0, 0.0, 0.0, 0.0, 0.0]])
    >>> thresholds = torch.tensor([[2.0, 9.0]])
    >>> count_above(table, thresholds, thresholds, torch.empty(1, 8, dtype=torch.bool))
    (tensor([[2, 0]]), tensor([[3, 0]]))
    """
    added = min(ADDED, table.shape[1] // BYTES)
    packed = mask.view(torch.int64).view(len(table), -1, added)
    found = []
    for compare, thresholds in ((torch.gt, high), (torch.ge, low)):
        counts = torch.empty_like(thresholds, dtype=torch.int64)
        for column in range(thresholds.shape[1]):
            compare(table, thresholds[:, column, None], out=mask)
            counts[:, column] = packed.sum(2).view(torch.uint8).sum(1)
        found.append(counts)
    return found[0], found[1]


def count_above_numpy(
    table: Tensor, high: Tensor, low: Tensor, mask: Tensor, pool: ThreadPoolExecutor
) -> tuple[Tensor, Tensor]:
    """The same counts on a CPU by NumPy, whose comparisons are several times faster.

    The rows are divided among the threads of the pool.
    """
    counts = torch.empty(2, *high.shape, dtype=torch.int64)

    def count(part: slice) -> None:
        rows, true = table[part].numpy(), mask[part].numpy()
        packed = true.view(np.int64).reshape(len(rows), -1, min(ADDED, rows.shape[1] // BYTES))
        for kind, thresholds in enumerate((high, low)):
            compare = (np.greater, np.greater_equal)[kind]
            own, out = thresholds[part].numpy(), counts[kind, part].numpy()
            for column in range(own.shape[1]):
                compare(rows, own[:, column, None], out=true)
                out[:, column] = packed.sum(2).view(np.uint8).sum(1, dtype=np.int64)

    step = -(-len(table) // torch.get_num_threads())
    parts = [slice(at, at + step) for at in range(0, len(table), step)]
    if len(parts) == 1:
        count(parts[0])
    else:
        list(pool.map(count, parts))
    return counts[0], counts[1]


def sort_rows(table: Tensor) -> tuple[Tensor, Tensor]:
    """The rows in ascending order, and the column that each number had.

    >>> sort_rows(torch.tensor([[3.0, 1.0, 2.0]]))
    (tensor([[1., 2., 3.]]), tensor([[1, 2, 0]]))
    """
    if table.device.type != "cpu":
        values, columns = table.sort(dim=1)
        return values, columns
    order = np.argsort(table.numpy(), axis=1)  # several times faster than torch's
    ordered = np.take_along_axis(table.numpy(), order, axis=1)
    return torch.from_numpy(ordered), torch.from_numpy(order)


@dataclass
class QueryBlock:
    """Some queries, their matches as positions in the ordered gallery, and the counts so far.

    All but `exact` are padded to a number of rows that `count_above` can process.
    """

    rows: slice  # in the order of the queries
    itself: Tensor  # (rows,) the query's own position in the gallery, -1 without
    columns: Tensor  # (rows, width) positions of the matches
    real: Tensor  # (rows, width) False: padding
    exact: Tensor  # (rows, width) similarity of the matches
    high: Tensor  # (rows, width) above it an item is certainly nearer than the match, float32
    low: Tensor  # (rows, width) below it an item is certainly farther
    nearer: Tensor  # (rows, width) items nearer than the match, so far
    crowded: Tensor  # (rows,) whether so much is undecided that the row is sorted as a whole


class RankCounter:
    """The queries, the ordered gallery, and the comparison of one table after another.

    order: the index of each position of the gallery; of equally similar items the one with the
    lower index is nearer.
    """

    def __init__(self, space: Space, queries: Rows, gallery: Rows, order: Tensor) -> None:
        self.space, self.queries, self.gallery = space, queries, gallery
        self.order = order
        self.most_compared = SORTED.get(order.device.type, SORTED["cpu"])
        self._buffers: dict[str, Tensor] = {}
        self._pool = ThreadPoolExecutor(torch.get_num_threads())

    def query_block(self, rows: slice, first: Tensor, sizes: Tensor, itself: Tensor) -> QueryBlock:
        """A block with all counts 0.

        first, sizes: where the class of each query begins in the gallery and how many are in it.
        """
        count = rows.stop - rows.start
        sizes = sizes - (itself >= 0).long()  # the matches
        width = max(1, int(sizes.max()))
        steps = torch.arange(width, device=first.device)
        columns = first[:, None] + steps
        columns += (itself[:, None] >= 0) & (columns >= itself[:, None])  # past the query itself
        real = steps < sizes[:, None]
        columns = torch.where(real, columns, 0)
        exact = self._match_similarities(rows, columns, real)
        lengths = self.queries.length[rows, None].expand_as(exact)
        threshold, margin = self.space.screen(lengths, exact)
        high = (threshold + margin).masked_fill_(~real, math.inf).float()
        low = (threshold - margin).masked_fill_(~real, math.inf).float()
        size = padded_size(count)
        more = size - count
        pad = torch.nn.functional.pad
        return QueryBlock(
            rows,
            pad(itself, (0, more), value=-1),
            pad(columns, (0, 0, 0, more)),
            pad(real, (0, 0, 0, more)),
            exact,
            pad(high, (0, 0, 0, more), value=math.inf),
            pad(low, (0, 0, 0, more), value=math.inf),
            torch.zeros(size, width, dtype=torch.int64, device=first.device),
            torch.zeros(size, dtype=torch.bool, device=first.device),
        )

    def _match_similarities(self, rows: slice, columns: Tensor, real: Tensor) -> Tensor:
        """Exact similarities of the queries to their matches; a class is contiguous."""
        exact = torch.full(columns.shape, math.inf, dtype=torch.float64, device=columns.device)
        width = columns.shape[1]
        if width <= BY_PAIRS:
            row, slot = real.nonzero().T
            exact[row, slot] = self.space.pairs(
                self.queries, row + rows.start, self.gallery, columns[row, slot]
            )
            return exact
        for at in range(0, len(columns), width):
            part = slice(at, at + width)
            kept = columns[part][real[part]]
            if len(kept):
                low, high = int(kept.min()), int(kept.max()) + 1
                these = slice(rows.start + at, min(rows.start + at + width, rows.stop))
                table = self.space.table(self.queries, these, self.gallery, slice(low, high))
                found = table.gather(1, (columns[part] - low).clamp_(0, high - low - 1))
                exact[part] = found.masked_fill_(~real[part], math.inf)
        return exact

    def _buffer(self, name: str, shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
        """Memory that is reused: a new allocation for each table costs as much as the table."""
        found = self._buffers.get(name)
        if found is None or found.shape != shape:
            found = torch.empty(shape, dtype=dtype, device=self.order.device)
            self._buffers[name] = found
        return found

    def products(self, rows: slice, columns: slice) -> Tensor:
        """Float32 products of queries and gallery, padded with -inf; valid until the next call."""
        x, y = self.queries.fast[rows], self.gallery.fast[columns]
        table = self._buffer("table", (padded_size(len(x)), padded_size(len(y))), torch.float32)
        with torch.autocast(x.device.type, enabled=False):
            if table.shape == (len(x), len(y)):
                return torch.mm(x, y.T, out=table)
            table.fill_(-math.inf)[: len(x), : len(y)] = x @ y.T
        return table

    def transposed(self, table: Tensor) -> Tensor:
        """A transposed copy, valid until the next call."""
        shape = table.shape[1], table.shape[0]
        return self._buffer("transposed", shape, table.dtype).copy_(table.T)

    def add(self, block: QueryBlock, table: Tensor, columns: slice) -> None:
        """Count the gallery items of one table of products; columns: their positions."""
        begin, count = columns.start, columns.stop - columns.start
        if self.gallery.bias is not None:
            table[:, :count] += self.gallery.bias[columns]
        own = block.itself - begin
        inside = ((own >= 0) & (own < count)).nonzero()[:, 0]
        table[inside, own[inside]] = -math.inf
        here = block.real & (block.columns >= begin) & (block.columns < begin + count)
        if block.nearer.shape[1] > self.most_compared:
            self._add_sorted(block, table, begin, here)
            return
        mask = self._buffer("mask", (table.shape[0], table.shape[1]), torch.bool)
        if mask.device.type == "cpu":
            counts = count_above_numpy(table, block.high, block.low, mask, self._pool)
        else:
            counts = count_above(table, block.high, block.low, mask)
        above, at_least = counts
        block.nearer += above
        undecided = (at_least - above - here.long()).clamp_(min=0)
        total = int(undecided.sum())
        if total > table.numel() // DENSE:
            self._decide_rows(block, table, begin, count, undecided)
        elif total:
            self._decide_entries(block, table, begin, undecided)

    def _add_sorted(self, block: QueryBlock, table: Tensor, begin: int, here: Tensor) -> None:
        """The same by sorting each row and searching the thresholds in it."""
        values, order = sort_rows(table)
        start = torch.searchsorted(values, block.low)
        stop = torch.searchsorted(values, block.high, right=True)
        block.nearer += table.shape[1] - stop
        undecided = (stop - start - here.long()).clamp_(min=0)
        block.crowded |= undecided.sum(1) > table.shape[1] // CROWDED
        row, slot = (undecided * ~block.crowded[:, None]).nonzero().T
        start, counts = start[row, slot], (stop - start)[row, slot]
        entry = torch.arange(len(row), device=row.device).repeat_interleave(counts)
        place = torch.arange(len(entry), device=row.device) - (counts.cumsum(0) - counts)[entry]
        column = order[row[entry], start[entry] + place]
        self._decide(block, row[entry], slot[entry], column + begin)

    def finish(self, block: QueryBlock) -> None:
        """Sort the crowded rows as a whole by their exact similarities."""
        rows = block.crowded.nonzero()[:, 0]
        step = self._rows_at_a_time(len(self.order))
        for row in (rows[at : at + step] for at in range(0, len(rows), step)):
            found = self.space.table(
                self.queries, row + block.rows.start, self.gallery, slice(None)
            )
            itself = block.itself[row]
            own = (itself >= 0).nonzero()[:, 0]
            found[own, itself[own]] = -math.inf
            _, index = self.space.ordered(found, self.order.expand_as(found))
            ranks = torch.empty_like(index)
            steps = torch.arange(index.shape[1], device=index.device)
            ranks.scatter_(1, index, steps.expand_as(index))
            block.nearer[row] = ranks.gather(1, self.order[block.columns[row]])

    def _decide_entries(
        self, block: QueryBlock, table: Tensor, begin: int, undecided: Tensor
    ) -> None:
        """Decide the few undecided pairs one by one."""
        entries = undecided.nonzero()
        for part in entries.split(self._rows_at_a_time(table.shape[1])):
            row, slot = part.T
            values = table.index_select(0, row)
            near = values >= block.low[row, slot, None]
            near &= values <= block.high[row, slot, None]
            entry, column = near.nonzero().T
            self._decide(block, row[entry], slot[entry], column + begin)

    def _decide(self, block: QueryBlock, row: Tensor, slot: Tensor, place: Tensor) -> None:
        """Compare gallery items with the match in this slot of this row, exactly, and count."""
        others = place != block.columns[row, slot]
        row, slot, place = row[others], slot[others], place[others]
        found = self.space.pairs(self.queries, row + block.rows.start, self.gallery, place)
        nearer = self._is_nearer(found, place, block.exact[row, slot], block.columns[row, slot])
        where = row * block.nearer.shape[1] + slot
        block.nearer.view(-1).index_add_(0, where, nearer.long())

    def _decide_rows(
        self, block: QueryBlock, table: Tensor, begin: int, count: int, undecided: Tensor
    ) -> None:
        """Decide many pairs at a time: the undecided rows against all columns, exactly."""
        rows = undecided.any(1).nonzero()[:, 0]
        places = torch.arange(begin, begin + count, device=rows.device)
        for row in rows.split(self._rows_at_a_time(count)):
            found = self.space.table(
                self.queries, row + block.rows.start, self.gallery, slice(begin, begin + count)
            )
            values = table[row, :count]
            for slot in undecided[row].any(0).nonzero()[:, 0].tolist():
                near = values >= block.low[row, slot, None]
                near &= values <= block.high[row, slot, None]
                match = block.columns[row, slot, None]
                near &= self._is_nearer(found, places, block.exact[row, slot, None], match)
                block.nearer[row, slot] += near.sum(1)

    def _rows_at_a_time(self, columns: int) -> int:
        return max(1, PART.get(self.order.device.type, PART["cpu"]) // columns)

    def _is_nearer(self, found: Tensor, place: Tensor, exact: Tensor, match: Tensor) -> Tensor:
        slack = self.space.slack(exact)
        lower = self.order[place] < self.order[match]  # never for the match itself
        return torch.where(lower, found >= exact - slack, found > exact + slack)
