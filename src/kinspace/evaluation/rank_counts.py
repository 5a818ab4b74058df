"""How many gallery items are nearer to each query than its matches are: the counting of `ranks`.

A table of fast similarities is compared with the similarity of each match, which is known exactly
beforehand. What lies within the bound of the fast ones' error is computed again exactly, a pair at
a time or, where they are many, all rows in doubt at once. Counts of tables add up.
"""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from kinspace.evaluation.similarity import Rows, Space
from kinspace.evaluation.threshold_counts import lane_counts, numpy_lane_counts, padded, sorted_rows

__all__ = ["Ranking", "Tile"]

MANY = {"cpu": 24, "cuda": 96}  # matches above which sorting a table is faster than comparing
BY_PAIRS = 64  # matches up to which their similarities are computed one by one
PART = {"cpu": 2**20, "cuda": 2**27}  # numbers of rows in doubt that are looked at together
CROWDED = 4  # the share of a row in doubt, 1 / CROWDED, from which it is ordered as a whole
DENSE = 16  # the share of a table in doubt, 1 / DENSE, from which it is computed as a whole


@dataclass
class Tile:
    """Queries, their matches as places in the ordered gallery, and what was counted so far.

    Rows are padded to a multiple that can be counted in lanes.
    """

    rows: slice  # in the order of the queries
    itself: Tensor  # (rows,) own place in the gallery, -1 without
    columns: Tensor  # (rows, width) places of the matches
    real: Tensor  # (rows, width) False: fills up
    exact: Tensor  # (rows, width) their similarity
    high: Tensor  # above it surely nearer, float32
    low: Tensor  # below it surely farther
    ahead: Tensor  # (rows, width) items nearer, so far
    crowded: Tensor  # (rows,) so much in doubt that the row is to be ordered as a whole


class Ranking:
    """The queries, the gallery in its order, and the counting of one table after another."""

    def __init__(self, space: Space, queries: Rows, gallery: Rows, order: Tensor) -> None:
        self.space, self.queries, self.gallery = space, queries, gallery
        self.order = order  # the index of each place of the gallery, which decides ties
        self.many = MANY.get(order.device.type, MANY["cpu"])
        self._buffers: dict[str, Tensor] = {}
        self._pool = ThreadPoolExecutor(torch.get_num_threads())

    def tile(self, rows: slice, first: Tensor, sizes: Tensor, itself: Tensor) -> Tile:
        """first, sizes: where the class of each query begins and how many are in it."""
        count = rows.stop - rows.start
        sizes = sizes - (itself >= 0).long()  # the matches
        width = max(1, int(sizes.max()))
        steps = torch.arange(width, device=first.device)
        columns = first[:, None] + steps
        columns += (itself[:, None] >= 0) & (columns >= itself[:, None])  # past the query itself
        real = steps < sizes[:, None]
        columns = torch.where(real, columns, 0)
        exact = self._exact(rows, columns, real)
        lengths = self.queries.length[rows, None].expand_as(exact)
        cut, margin = self.space.screen(lengths, exact)
        high = (cut + margin).masked_fill_(~real, math.inf).float()
        low = (cut - margin).masked_fill_(~real, math.inf).float()
        more = padded(count) - count
        fill = torch.nn.functional.pad
        return Tile(
            rows,
            fill(itself, (0, more), value=-1),
            fill(columns, (0, 0, 0, more)),
            fill(real, (0, 0, 0, more)),
            exact,
            fill(high, (0, 0, 0, more), value=math.inf),
            fill(low, (0, 0, 0, more), value=math.inf),
            torch.zeros(padded(count), width, dtype=torch.int64, device=first.device),
            torch.zeros(padded(count), dtype=torch.bool, device=first.device),
        )

    def _exact(self, rows: slice, columns: Tensor, real: Tensor) -> Tensor:
        """The similarity of the queries to their matches; of a class they are side by side."""
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
        """Memory for a table; asking the system for it anew each time would cost as much as it."""
        found = self._buffers.get(name)
        if found is None or found.shape != shape:
            found = torch.empty(shape, dtype=dtype, device=self.order.device)
            self._buffers[name] = found
        return found

    def products(self, rows: slice, columns: slice) -> Tensor:
        """The table of fast products, filled up with -inf to padded sizes, until the next one."""
        x, y = self.queries.fast[rows], self.gallery.fast[columns]
        table = self._buffer("table", (padded(len(x)), padded(len(y))), torch.float32)
        with torch.autocast(x.device.type, enabled=False):
            if table.shape == (len(x), len(y)):
                return torch.mm(x, y.T, out=table)
            table.fill_(-math.inf)[: len(x), : len(y)] = x @ y.T
        return table

    def on_its_side(self, table: Tensor) -> Tensor:
        """A copy with rows for columns, until the next one."""
        return self._buffer("side", (table.shape[1], table.shape[0]), table.dtype).copy_(table.T)

    def take(self, tile: Tile, table: Tensor, columns: slice) -> None:
        """Count one table of products, (rows, columns), of these places of the gallery."""
        begin, count = columns.start, columns.stop - columns.start
        if self.gallery.bias is not None:
            table[:, :count] += self.gallery.bias[columns]
        own = tile.itself - begin
        inside = ((own >= 0) & (own < count)).nonzero()[:, 0]
        table[inside, own[inside]] = -math.inf
        here = tile.real & (tile.columns >= begin) & (tile.columns < begin + count)
        if tile.ahead.shape[1] > self.many:
            self._search(tile, table, begin, here)
            return
        mask = self._buffer("mask", (table.shape[0], table.shape[1]), torch.bool)
        if mask.device.type == "cpu":
            counts = numpy_lane_counts(table, tile.high, tile.low, mask, self._pool)
        else:
            counts = lane_counts(table, tile.high, tile.low, mask)
        above, from_low = counts
        tile.ahead += above
        doubt = (from_low - above - here.long()).clamp_(min=0)
        total = int(doubt.sum())
        if total > table.numel() // DENSE:
            self._whole(tile, table, begin, count, doubt)
        elif total:
            self._some(tile, table, begin, doubt)

    def _search(self, tile: Tile, table: Tensor, begin: int, here: Tensor) -> None:
        """Count by sorting each row and searching the matches in it."""
        values, order = sorted_rows(table)
        start = torch.searchsorted(values, tile.low)
        stop = torch.searchsorted(values, tile.high, right=True)
        tile.ahead += table.shape[1] - stop
        doubt = (stop - start - here.long()).clamp_(min=0)
        tile.crowded |= doubt.sum(1) > table.shape[1] // CROWDED
        row, slot = (doubt * ~tile.crowded[:, None]).nonzero().T
        start, counts = start[row, slot], (stop - start)[row, slot]
        entry = torch.arange(len(row), device=row.device).repeat_interleave(counts)
        place = torch.arange(len(entry), device=row.device) - (counts.cumsum(0) - counts)[entry]
        column = order[row[entry], start[entry] + place]
        self._decide(tile, row[entry], slot[entry], column + begin)

    def settle(self, tile: Tile) -> None:
        """Order the crowded rows as a whole, exactly."""
        rows = tile.crowded.nonzero()[:, 0]
        step = self._fitting(len(self.order))
        for row in (rows[at : at + step] for at in range(0, len(rows), step)):
            found = self.space.table(self.queries, row + tile.rows.start, self.gallery, slice(None))
            itself = tile.itself[row]
            own = (itself >= 0).nonzero()[:, 0]
            found[own, itself[own]] = -math.inf
            _, index = self.space.ordered(found, self.order.expand_as(found))
            places = torch.empty_like(index)
            steps = torch.arange(index.shape[1], device=index.device)
            places.scatter_(1, index, steps.expand_as(index))
            tile.ahead[row] = places.gather(1, self.order[tile.columns[row]])

    def _some(self, tile: Tile, table: Tensor, begin: int, doubt: Tensor) -> None:
        """Decide the few pairs in doubt one by one."""
        entries = doubt.nonzero()
        for part in entries.split(self._fitting(table.shape[1])):
            row, slot = part.T
            values = table.index_select(0, row)
            near = values >= tile.low[row, slot, None]
            near &= values <= tile.high[row, slot, None]
            entry, column = near.nonzero().T
            self._decide(tile, row[entry], slot[entry], column + begin)

    def _decide(self, tile: Tile, row: Tensor, slot: Tensor, place: Tensor) -> None:
        """Count what is ahead of the match in this slot of this row, exactly."""
        others = place != tile.columns[row, slot]
        row, slot, place = row[others], slot[others], place[others]
        found = self.space.pairs(self.queries, row + tile.rows.start, self.gallery, place)
        ahead = self._is_ahead(found, place, tile.exact[row, slot], tile.columns[row, slot])
        where = row * tile.ahead.shape[1] + slot
        tile.ahead.view(-1).index_add_(0, where, ahead.long())

    def _whole(self, tile: Tile, table: Tensor, begin: int, count: int, doubt: Tensor) -> None:
        """Decide many at a time: the rows in doubt against all columns, exactly."""
        rows = doubt.any(1).nonzero()[:, 0]
        places = torch.arange(begin, begin + count, device=rows.device)
        for row in rows.split(self._fitting(count)):
            found = self.space.table(
                self.queries, row + tile.rows.start, self.gallery, slice(begin, begin + count)
            )
            values = table[row, :count]
            for slot in doubt[row].any(0).nonzero()[:, 0].tolist():
                near = values >= tile.low[row, slot, None]
                near &= values <= tile.high[row, slot, None]
                match = tile.columns[row, slot, None]
                near &= self._is_ahead(found, places, tile.exact[row, slot, None], match)
                tile.ahead[row, slot] += near.sum(1)

    def _fitting(self, columns: int) -> int:
        return max(1, PART.get(self.order.device.type, PART["cpu"]) // columns)

    def _is_ahead(self, found: Tensor, place: Tensor, exact: Tensor, match: Tensor) -> Tensor:
        slack = self.space.slack(exact)
        lower = self.order[place] < self.order[match]  # never for the match itself
        return torch.where(lower, found >= exact - slack, found > exact + slack)
