"""The classes of a batch: which samples are of one class, and sums and means over each class.

Inside torch.compile and vmap no shape may depend on values. There every list is as long as the
batch, and masks say what counts; otherwise it is as long as it has to be. For batches of up to
FIXED samples it is so on a GPU too: the host would have to wait for the length, and what it
prepares after that would not be hidden behind the network.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from kinspace._core.tensor_ops import is_traced

__all__ = ["ClassIndex", "class_means", "class_sums"]

FIXED = 512  # beyond, lists as long as the batch take longer than the host would wait


class ClassIndex:
    """Which samples of a batch are of one class, from their labels (batch,).

    A property that is not asked for is not computed.

    reference_labels: of other samples, to which those of the batch are compared instead; "batch"
    below is then, of a column and of what an index points to, the reference. `same`, `different`,
    `sizes`, `positives` and `following` are for both.
    includes_batch: the reference begins with the batch itself, so that no sample is its own
    positive, as where there is no reference.

    >>> index = ClassIndex(torch.tensor([5, 1, 5, 5]))
    >>> index.sizes, index.same[0]
    (tensor([3, 1, 3, 3]), tensor([ True, False,  True,  True]))
    >>> ClassIndex(torch.tensor([5, 1]), torch.tensor([5, 2, 5])).sizes
    tensor([2, 0])
    """

    def __init__(
        self,
        labels: Tensor,
        reference_labels: Tensor | None = None,
        *,
        includes_batch: bool = False,
    ) -> None:
        self.labels = labels
        self.others = labels if reference_labels is None else reference_labels
        self.excludes_itself = includes_batch or reference_labels is None
        self._sorted: tuple[Tensor, Tensor] | None = None
        self._limits: tuple[Tensor, Tensor] | None = None

    @property
    def _fixed(self) -> bool:
        """Whether lists are as long as the batch, whatever the labels are."""
        labels = self.others
        return is_traced(self.labels) or (labels.is_cuda and len(labels) <= FIXED)

    @property
    def comparisons(self) -> int:
        """How many ordered pairs there are of a sample and another one."""
        return len(self.labels) * (len(self.others) - int(self.excludes_itself))

    grades = None  # all positives count alike

    def joins(self, first: Tensor, second: Tensor) -> Tensor:
        """Whether listed pairs of a sample and another one are of one class."""
        return self.labels[first] == self.others[second]

    @property
    def same(self) -> Tensor:
        """Mask (batch, batch) of pairs of one class, each sample with itself among them."""
        return self.labels[:, None] == self.others

    @property
    def different(self) -> Tensor:
        """Mask (batch, batch) of pairs of different classes."""
        return self.labels[:, None] != self.others

    @property
    def order(self) -> Tensor:
        """The samples class by class, in batch order within each, (batch,)."""
        return self._ordered[1]

    @property
    def _ordered(self) -> tuple[Tensor, Tensor]:
        """The labels in ascending order, and the samples in that order, (batch,) each."""
        if self._sorted is None:
            ordered, order = self.others.sort(stable=True)
            self._sorted = ordered, order
        return self._sorted

    @property
    def _bounds(self) -> tuple[Tensor, Tensor]:
        """Where in `order` the class of each sample begins and ends, (batch,) each."""
        if self._limits is None:
            ordered, _ = self._ordered
            first = torch.searchsorted(ordered, self.labels)
            self._limits = first, torch.searchsorted(ordered, self.labels, right=True)
        return self._limits

    @property
    def _places(self) -> Tensor:
        """Where in `order` each sample is, (batch,)."""
        places = torch.arange(len(self.labels), device=self.labels.device)
        return places.scatter(0, self.order, places)

    @property
    def sizes(self) -> Tensor:
        """How many samples the class of each sample has, (batch,)."""
        first, after = self._bounds
        return after - first

    @property
    def slots(self) -> Tensor:
        """A number below the batch size for each sample, the same for all of one class, (batch,).

        Tables of one row a class then have as many rows as the batch, whatever the labels are.

        >>> ClassIndex(torch.tensor([7, 3, 7, 9])).slots
        tensor([1, 0, 1, 3])
        """
        return self._bounds[0]

    @property
    def classes(self) -> tuple[Tensor, Tensor]:
        """The labels that occur, in ascending order, and for each sample the place of its own.

        Where lists are as long as the batch, those of the `slots`; an empty slot repeats one of the
        labels, and a formula has to leave it out (`labels.unique` has no empty slots).

        >>> ClassIndex(torch.tensor([7, 3, 7, 9])).classes
        (tensor([3, 7, 9]), tensor([1, 0, 1, 2]))
        """
        if self._fixed:
            repeated = self.labels[:1].expand_as(self.labels)
            return repeated.scatter(0, self.slots, self.labels), self.slots
        found, places = self.labels.unique(return_inverse=True)
        return found, places

    @property
    def positives(self) -> tuple[Tensor, Tensor]:
        """For each sample those of its class, in batch order: (batch, largest class).

        Indices, and which of them count: not the sample itself, and not the repeats that fill the
        rows of smaller classes.

        >>> index, counts = ClassIndex(torch.tensor([5, 1, 5, 5])).positives
        >>> index
        tensor([[0, 2, 3],
                [1, 1, 1],
                [0, 2, 3],
                [0, 2, 3]])
        >>> counts[:2]
        tensor([[False,  True,  True],
                [False, False, False]])
        """
        first, after = self._bounds
        width = len(self.others) if self._fixed else max(int(self.sizes.max()), 1)
        places = first[:, None] + torch.arange(width, device=first.device)
        last = after[:, None] - 1
        if self.others is not self.labels:  # which may have none of a class: any index will do
            last = last.clamp(min=0)
        index = self.order[torch.minimum(places, last)]
        counts = places < after[:, None]
        if not self.excludes_itself:
            return index, counts
        itself = torch.arange(len(index), device=first.device)[:, None]
        return index, counts & (index != itself)

    @property
    def following(self) -> tuple[Tensor, Tensor]:
        """The next sample of the class in batch order, cyclic, and whether it is another one.

        In a reference that is not the batch the n-th sample of a class has the n-th of that class.

        >>> ClassIndex(torch.tensor([5, 1, 5, 5])).following
        (tensor([2, 1, 3, 0]), tensor([ True, False,  True,  True]))
        >>> ClassIndex(torch.tensor([5, 1, 5, 5]), torch.tensor([5, 2, 5])).following
        (tensor([0, 1, 2, 0]), tensor([ True, False,  True,  True]))
        """
        first, after = self._bounds
        if self.others is self.labels:
            beyond = self._places + 1
            return self.order[torch.where(beyond < after, beyond, first)], self.sizes > 1
        batch = ClassIndex(self.labels)
        turn = batch._places - batch._bounds[0] + int(self.excludes_itself)
        place = first + turn % (after - first).clamp(min=1)
        counts = self.sizes > int(self.excludes_itself)
        return self.order[place.where(counts, torch.zeros_like(place))], counts

    @property
    def first_pairs(self) -> tuple[Tensor, Tensor, Tensor]:
        """Of each class that has two the first sample, the second one, and which of these count.

        >>> ClassIndex(torch.tensor([5, 1, 5, 5, 0, 0])).first_pairs[:2]
        (tensor([4, 0]), tensor([5, 2]))
        """
        ordered, order = self._ordered
        joined = ordered[1:] == ordered[:-1]  # to the sample before
        counts = joined & ~functional.pad(joined[:-1], (1, 0))
        if self._fixed:
            return order[:-1], order[1:], counts
        return order[:-1][counts], order[1:][counts], counts[counts]

    @property
    def pairs(self) -> tuple[Tensor, Tensor, Tensor]:
        """Each pair of one class once: its first samples, its second ones, and which count.

        >>> ClassIndex(torch.tensor([5, 1, 5, 5])).pairs[:2]
        (tensor([0, 0, 2]), tensor([2, 3, 3]))
        """
        if self._fixed:  # all pairs of the batch, in the order of the others
            size = len(self.labels)
            first, second = torch.triu_indices(size, size, 1, device=self.labels.device)
            return first, second, self.labels[first] == self.labels[second]
        index, counts = self.positives
        itself = torch.arange(len(index), device=index.device)[:, None].expand_as(index)
        counts = counts & (index > itself)
        return itself[counts], index[counts], counts[counts]

    def listed(self, mask: Tensor, *tables: Tensor) -> tuple[Tensor, ...]:
        """The entries of tables that the mask names, as lists, and which of the lists count.

        Where lists are as long as the batch they have all entries.

        >>> index = ClassIndex(torch.tensor([5, 1, 5]))
        >>> index.listed(index.same.triu(1), torch.arange(9).view(3, 3))
        (tensor([2]), tensor([True]))
        """
        if self._fixed:
            return *(table.flatten() for table in tables), mask.flatten()
        return *(table[mask] for table in tables), mask[mask]


def class_sums(values: Tensor, classes: Tensor, count: int) -> Tensor:
    """Sum of the rows, or of the entries, of each class: (count, ...).

    >>> class_sums(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([2, 0, 2]), 3)
    tensor([2., 0., 5.])
    """
    return values.new_zeros(count, *values.shape[1:]).index_add(0, classes, values)


def class_means(rows: Tensor, classes: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Mean (count, dim) and number (count,) of the rows of each class; 0 over none.

    >>> class_means(torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([2, 0, 2]), 3)
    (tensor([[2.0000],
            [0.0000],
            [2.5000]]), tensor([1., 0., 2.]))
    """
    counts = class_sums(torch.ones_like(rows[:, 0]), classes, count).detach()
    return class_sums(rows, classes, count) / counts.clamp(min=1)[:, None], counts
