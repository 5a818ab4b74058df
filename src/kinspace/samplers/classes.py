"""Samples by class: what samplers that compose batches of classes draw from."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["Classes", "Labels", "sort_order"]

Labels = Tensor | NDArray[np.integer] | Sequence[int]
Ints = NDArray[np.intp]


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
