"""Groups of samples shared out to batches of m classes x n samples, a whole pass at a time.

A class of n samples or more is cut, in random order, into groups of n; the last one is filled up
with samples of the class drawn again. A smaller class is one group, whole. So every sample is in a
group. The groups are shared out so that no class is twice in a batch:

1. Small classes, the largest first, go round the batches in turn. Every batch gets a like share.
2. What is left of each batch is slots of n samples, a table with a row a batch. The groups of n,
   those of a class side by side, fill it column by column: a class lies in one column or in two.
   The rows of a column are in random order; a class that goes on in the next column keeps out of
   the rows it has already.
3. What is still free, less than a slot in most batches, is filled with classes drawn at random
   among those not in the batch, the last one cut to fit.

There are just enough batches to hold all groups, and at least as many as the largest class has
groups, since these have to be in different batches.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kinspace.samplers.classes import Classes, sort_order

__all__ = ["BalancedPlan"]

Ints = NDArray[np.intp]
_NO_CLASS = np.iinfo(np.intp).max // 2  # behind every class, also after a little is taken off


class _Groups(NamedTuple):
    """Samples from the one at `first` on in their class (`owner`), and the batch they go to."""

    batch: Ints
    owner: Ints
    first: Ints
    amount: Ints


class BalancedPlan:
    """Batches of `groups` x `size` samples.

    >>> plan = BalancedPlan(Classes.of_labels([0, 0, 0, 1, 1, 1, 1, 2, 2]), groups=2, size=2)
    >>> plan.batches, plan.draw(np.random.default_rng(0))
    (3, array([[1, 2, 4, 5],
           [8, 7, 6, 3],
           [2, 0, 8, 7]]))
    """

    def __init__(self, classes: Classes, *, groups: int, size: int) -> None:
        self._classes = classes
        self._size = size
        self._capacity = groups * size
        small = np.flatnonzero(classes.sizes < size)
        self._small = small[np.argsort(-classes.sizes[small], kind="stable")]
        self._large = np.flatnonzero(classes.sizes >= size)
        self._parts = -(-classes.sizes[self._large] // size)  # groups of each large class
        self.batches = self._fewest_batches()

    def draw(self, rng: np.random.Generator) -> Ints:
        """All batches of a pass, (batches, groups * size)."""
        classes = self._classes
        order = classes.shuffled(rng)
        groups = self._filled_up(_joined(self._small_groups(rng), self._large_groups(rng)), rng)
        turn = sort_order(rng.permutation(self.batches)[groups.batch], self.batches)
        _, *windows = (column[turn] for column in groups)
        return classes.windows(order, *windows).reshape(self.batches, self._capacity)

    def _slots(self, batches: int) -> Ints:
        """Slots for groups of full size that the small classes leave in each batch."""
        turns = np.arange(len(self._small)) % batches
        taken = np.bincount(turns, self._classes.sizes[self._small], batches).astype(np.intp)
        return (self._capacity - taken) // self._size

    def _fewest_batches(self) -> int:
        needed = int(self._parts.sum())
        samples = needed * self._size + int(self._classes.sizes[self._small].sum())
        batches = max(-(-samples // self._capacity), int(self._parts.max(initial=0)))
        while True:
            slots = self._slots(batches)
            lacking = needed - int(slots.sum())
            if lacking <= 0 and slots.min() >= 0:
                return batches
            batches += max(lacking * self._size // self._capacity, 1)

    def _small_groups(self, rng: np.random.Generator) -> _Groups:
        sizes = self._classes.sizes[self._small]
        mixed = rng.permutation(len(self._small))
        # back by size, so that each batch gets the sizes it has room for
        owner = self._small[mixed[np.argsort(-sizes[mixed], kind="stable")]]
        batch = np.arange(len(owner)) % self.batches
        return _Groups(batch, owner, np.zeros_like(owner), sizes)

    def _large_groups(self, rng: np.random.Generator) -> _Groups:
        mixed = rng.permutation(len(self._large))
        parts = self._parts[mixed]
        ends = np.cumsum(parts)
        owner = np.repeat(self._large[mixed], parts)
        number = np.arange(len(owner)) - np.repeat(ends - parts, parts)
        batch = _spread(ends, self._slots(self.batches), rng)
        return _Groups(batch, owner, number * self._size, np.full_like(owner, self._size))

    def _filled_up(self, groups: _Groups, rng: np.random.Generator) -> _Groups:
        sizes = self._classes.sizes
        free = self._capacity - np.bincount(groups.batch, groups.amount, self.batches).astype(int)
        present = _by_batch(groups, self.batches)  # (batches, most classes in one)
        while (batch := np.flatnonzero(free)).size:
            owner = _another(np.sort(present[batch], axis=1), len(sizes), rng)
            first = rng.integers(sizes[owner])
            count = np.minimum(np.minimum(sizes[owner], self._size), free[batch])
            groups = _joined(groups, _Groups(batch, owner, first, count))
            free[batch] -= count
            present = np.pad(present, ((0, 0), (0, 1)), constant_values=_NO_CLASS)
            present[batch, -1] = owner
        return groups


def _joined(*parts: _Groups) -> _Groups:
    return _Groups(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def _spread(ends: Ints, slots: Ints, rng: np.random.Generator) -> Ints:
    """A batch for each group, never two groups of a class in one.

    ends: where the groups of each class end, when they are put class by class; no class has more
    groups than there are batches. slots: how many each batch has room for, equal or one more.
    """
    batches = np.empty(ends[-1] if len(ends) else 0, dtype=np.intp)
    # First the column that some rows lack: later it might have none free for a class going on.
    rows = np.flatnonzero(slots > slots.min())
    begin = 0
    while begin < len(batches):
        column = rng.permutation(rows)
        owner = np.searchsorted(ends, begin, side="right")
        before = batches[ends[owner - 1] if owner else 0 : begin]  # rows the class has already
        if len(before):
            taken = np.zeros(len(slots), dtype=bool)
            taken[before] = True
            lead = np.flatnonzero(~taken[column])[: ends[owner] - begin]
            column = np.concatenate([column[lead], np.delete(column, lead)])
        batches[begin : begin + len(column)] = column[: len(batches) - begin]
        begin += len(column)
        rows = np.arange(len(slots))
    return batches


def _by_batch(groups: _Groups, batches: int) -> Ints:
    """The classes of each batch in a row, filled up with _NO_CLASS."""
    counts = np.bincount(groups.batch, minlength=batches)
    turn = sort_order(groups.batch, batches)
    place = np.arange(len(turn)) - np.repeat(np.cumsum(counts) - counts, counts)
    table = np.full((batches, counts.max(initial=0)), _NO_CLASS)
    table[groups.batch[turn], place] = groups.owner[turn]
    return table


def _another(present: Ints, classes: int, rng: np.random.Generator) -> Ints:
    """A random class for each row of sorted classes, and none of those in the row."""
    draw = rng.integers(classes - (present < _NO_CLASS).sum(1))[:, None]
    # the class of that number among the absent: skip those present at or below it
    below = present - np.arange(present.shape[1]) <= draw  # (batches, classes in one)
    return np.asarray(draw[:, 0] + below.sum(1))
