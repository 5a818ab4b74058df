"""Samples by class, and balanced batches of them.

`Classes` is what samplers that compose batches of classes draw from.

`BalancedPlan` shares groups of samples out to batches of m classes x n samples, a whole pass at a
time.

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

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["BalancedPlan", "Classes", "Labels", "sort_order"]

Labels = Tensor | NDArray[np.integer] | Sequence[int]
Ints = NDArray[np.intp]
_NO_CLASS = np.iinfo(np.intp).max // 2  # behind every class, also after a little is taken off


@dataclass(frozen=True)
class Classes:
    """The classes of a set of labels, numbered from 0 in the order of the labels.

    >>> classes = Classes.of_labels([7, 3, 7, 7])
    >>> classes.of, classes.sizes, classes.starts
    (array([1, 0, 1, 1]), array([1, 3]), array([0, 1]))
    """

    of: Ints  # (samples,) the class of each sample
    sizes: Ints  # (classes,)
    starts: Ints  # (classes,) where a class begins when samples are put class by class
    checksum: int  # of the labels: a saved position is of no use with others

    @classmethod
    def of_labels(cls, labels: Labels) -> Classes:
        """Check the labels, one whole number of 0 or more a sample, and sort them out."""
        values = _checked(labels)
        _, of, sizes = np.unique(values, return_inverse=True, return_counts=True)
        return cls(
            of=of,
            sizes=sizes,
            starts=np.cumsum(sizes) - sizes,
            checksum=zlib.crc32(values.tobytes()),
        )

    def shuffled(self, rng: np.random.Generator) -> Ints:
        """All samples, class by class, in random order within each class.

        >>> Classes.of_labels([7, 3, 7, 7]).shuffled(np.random.default_rng(0))
        array([1, 2, 0, 3])
        """
        order = rng.permutation(len(self.of))
        return order[sort_order(self.of[order], len(self.sizes))]

    def windows(self, order: Ints, owner: Ints, first: Ints, count: Ints) -> Ints:
        """`count` samples of each class in `owner`, from the one at `first`, in `order` (cyclic).

        order: the samples class by class. No count is above its class's size.

        >>> classes, of = Classes.of_labels([7, 3, 7, 7]), np.array
        >>> classes.windows(of([1, 0, 2, 3]), of([1, 0]), of([2, 0]), of([2, 1]))
        array([3, 0, 1])
        """
        window = np.repeat(np.arange(len(owner)), count)  # (samples of all windows,)
        place = np.arange(len(window)) + (first - np.cumsum(count) + count)[window]
        size = self.sizes[owner][window]
        place -= np.where(place >= size, size, 0)
        return order[self.starts[owner][window] + place]


def sort_order(numbers: Ints, below: int) -> Ints:
    """Where the numbers, from 0 and below a limit, are when they are sorted; equal ones in turn.

    >>> sort_order(np.array([2, 0, 2, 1]), 3)
    array([1, 3, 0, 2])
    """
    # 16 bits where they are enough: numpy sorts those by radix, ten times faster. Stable, so that
    # processes on different processors agree.
    return np.argsort(numbers.astype(np.min_scalar_type(below)), kind="stable")


def _checked(labels: Labels) -> NDArray[np.int64]:
    values = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if values.ndim != 1 or len(values) == 0:
        raise ValueError(
            f"labels: expected a vector with one label a sample, got shape {values.shape}"
        )
    if values.dtype.kind not in "iu":
        raise ValueError(f"labels: expected integers, got {values.dtype}")
    if values.min() < 0:
        raise ValueError(f"labels: expected 0 or more, got {values.min()}")
    return np.ascontiguousarray(values, dtype=np.int64)


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
