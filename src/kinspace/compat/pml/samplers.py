"""The samplers of pytorch-metric-learning by name, over `kinspace.samplers`."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from kinspace.samplers import BatchSampler, classes_by_samples, hierarchical
from kinspace.samplers.classes import Labels

__all__ = ["HierarchicalSampler", "MPerClassSampler"]


class MPerClassSampler:
    """A sampler of single samples, m of a class in a row: `DataLoader(data, batch_size, sampler)`.

    Over `classes_by_samples`: a class of fewer than m samples is taken whole, where there its
    samples are repeated; an epoch is one pass, or `length_before_new_iter` samples where given.

    >>> list(MPerClassSampler([0, 0, 1, 1, 2, 2], m=2, batch_size=4, length_before_new_iter=4))
    [3, 2, 4, 5]
    """

    def __init__(
        self,
        labels: Labels,
        m: int,
        batch_size: int | None = None,
        length_before_new_iter: int | None = None,
    ) -> None:
        classes = len(np.unique(np.asarray(labels)))
        size = m * classes if batch_size is None else batch_size
        if size % m:
            raise ValueError(f"batch_size: expected a multiple of m, {m}, got {size}")
        length = None if length_before_new_iter is None else max(1, length_before_new_iter // size)
        self.batches: BatchSampler = classes_by_samples(
            labels, classes=size // m, samples=m, batches_per_epoch=length
        )

    def __len__(self) -> int:
        return len(self.batches) * self.batches.batch_size

    def __iter__(self) -> Iterator[int]:
        for batch in self.batches:
            yield from batch

    def set_epoch(self, epoch: int) -> None:
        """As torch's DistributedSampler."""
        self.batches.set_epoch(epoch)


def HierarchicalSampler(
    labels: Labels,
    batch_size: int,
    samples_per_class: int,
    batches_per_super_tuple: int = 4,
    super_classes_per_batch: int = 2,
    inner_label: int = 0,
    outer_label: int = 1,
) -> BatchSampler:
    """`kinspace.samplers.hierarchical`; labels (samples, 2), the class and its parent.

    As many batches as there: some for each choice of parents; here the parents are drawn.

    >>> labels = np.array([[0, 0], [0, 0], [1, 1], [1, 1]])
    >>> sorted(next(iter(HierarchicalSampler(labels, batch_size=4, samples_per_class=2))))
    [0, 1, 2, 3]
    """
    table = np.asarray(labels)
    parents = len(np.unique(table[:, outer_label]))
    together = super_classes_per_batch * samples_per_class
    if batch_size % together:
        raise ValueError(f"batch_size: expected a multiple of {together}, got {batch_size}")
    return hierarchical(
        table[:, inner_label],
        table[:, outer_label],
        parents_per_batch=super_classes_per_batch,
        classes=batch_size // together,
        samples=samples_per_class,
        batches_per_epoch=batches_per_super_tuple * math.comb(parents, super_classes_per_batch),
    )
