"""How many gallery items are nearer to each query than its matches are: the counting of `ranks`.

A table of fast similarities is compared with the similarity of each match, which is known exactly
beforehand. What lies within the bound of the fast ones' error is computed again exactly, a pair at
a time or, where they are many, all rows in doubt at once. Counts of tables add up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from kinspace.evaluation.similarity import Rows, Space

__all__ = ["Ranking", "Tile", "padded"]

MANY = {"cpu": 24, "cuda": 96}  # matches above which sorting a table is faster than comparing
LANES, RUN = 8, 128  # bytes of an int64 as counters, and how many are added before they are full
BY_PAIRS = 64  # matches up to which their similarities are computed one by one
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


class Ranking:
    """The queries, the gallery in its order, and the counting of one table after another."""

    def __init__(self, space: Space, queries: Rows, gallery: Rows, order: Tensor) -> None:
        self.space, self.queries, self.gallery = space, queries, gallery
        self.order = order  # the index of each place of the gallery, which decides ties
        self.many = MANY.get(order.device.type, MANY["cpu"])
        self._buffers: dict[str, Tensor] = {}

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
        if tile.ahead.shape[1] > self.many:
            above, from_low = _sorted_counts(table, tile.high, tile.low)
        else:
            mask = self._buffer("mask", (table.shape[0], table.shape[1]), torch.bool)
            above, from_low = _lane_counts(table, tile.high, tile.low, mask)
        tile.ahead += above
        here = tile.real & (tile.columns >= begin) & (tile.columns < begin + count)
        doubt = (from_low - above - here.long()).clamp_(min=0)
        total = int(doubt.sum())
        if total > table.numel() // DENSE:
            self._whole(tile, table, begin, count, doubt)
        elif total:
            self._some(tile, table, begin, doubt)

    def _some(self, tile: Tile, table: Tensor, begin: int, doubt: Tensor) -> None:
        """Decide the few pairs in doubt one by one."""
        entries = doubt.nonzero()
        for part in entries.split(max(1, 2**20 // table.shape[1])):
            row, slot = part.T
            values = table.index_select(0, row)
            near = values >= tile.low[row, slot, None]
            near &= values <= tile.high[row, slot, None]
            entry, column = near.nonzero().T
            row, slot, place = row[entry], slot[entry], column + begin
            found = self.space.pairs(self.queries, row + tile.rows.start, self.gallery, place)
            ahead = self._is_ahead(found, place, tile.exact[row, slot], tile.columns[row, slot])
            where = row * tile.ahead.shape[1] + slot
            tile.ahead.view(-1).index_add_(0, where, ahead.long())

    def _whole(self, tile: Tile, table: Tensor, begin: int, count: int, doubt: Tensor) -> None:
        """Decide many at a time: the rows in doubt against all columns, exactly."""
        rows = doubt.any(1).nonzero()[:, 0]
        places = torch.arange(begin, begin + count, device=rows.device)
        for row in rows.split(max(1, 2**20 // count)):
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

    def _is_ahead(self, found: Tensor, place: Tensor, exact: Tensor, match: Tensor) -> Tensor:
        slack = self.space.slack(exact)
        lower = self.order[place] < self.order[match]  # never for the match itself
        return torch.where(lower, found >= exact - slack, found > exact + slack)


def padded(count: int) -> int:
    """The least number of rows or columns from `count` on that can be counted in lanes."""
    unit = LANES if count <= LANES * RUN else LANES * RUN
    return -(-count // unit) * unit


def _lane_counts(table: Tensor, high: Tensor, low: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """For each row how many entries are > high and how many >= low, for every match.

    The truth values are added as int64, eight counters in one number: much faster than as bool.
    """
    run = min(RUN, table.shape[1] // LANES)

    def counts() -> Tensor:
        lanes = mask.view(torch.int64).view(len(table), -1, run).sum(2)  # at most 128 a byte
        return lanes.view(torch.uint8).sum(1, dtype=torch.int32)

    above, from_low = (torch.empty_like(high, dtype=torch.int64) for _ in range(2))
    for slot in range(high.shape[1]):
        torch.gt(table, high[:, slot, None], out=mask)
        above[:, slot] = counts()
        torch.ge(table, low[:, slot, None], out=mask)
        from_low[:, slot] = counts()
    return above, from_low


def _sorted_counts(table: Tensor, high: Tensor, low: Tensor) -> tuple[Tensor, Tensor]:
    """The same by sorting each row: for many matches."""
    if table.device.type == "cpu":  # many times faster than torch's, which keeps the places
        ordered = torch.from_numpy(np.sort(table.numpy(), axis=1))
    else:
        ordered = table.sort(dim=1).values
    count = table.shape[1]
    above = count - torch.searchsorted(ordered, high, right=True)
    return above, count - torch.searchsorted(ordered, low)
