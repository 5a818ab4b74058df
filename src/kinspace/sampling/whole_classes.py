"""Batches of whole classes, accumulated in random order until the batch is full.

A batch is full when the next class does not fit any more: batches have at most `batch_size` samples
and more than `batch_size` less the largest class. An epoch is one pass: every class comes up once,
whole. Only the last batch is filled up with classes drawn again, so that it is not a small rest.

How many batches there are depends on the order drawn. `len` is exact for the epoch in progress (or
the next, where none has begun) and may differ by a few from epoch to epoch; `batches_per_epoch`
makes it the same for all. With a batch size of twice the largest class or more every batch has at
least two classes.

Li et al., Deep metric learning with density adaptivity (DML-DA), on Stanford Online Products, where
classes have about five samples.
"""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray

from kinspace import checks
from kinspace.sampling.classes import Classes, Labels
from kinspace.sampling.epochs import Epochs
from kinspace.sampling.sharding import Shard

__all__ = ["WholeClasses"]


class WholeClasses(Epochs):
    """Batches of whole classes, at most `batch_size` samples (module docstring).

    >>> sampler = WholeClasses([0, 0, 1, 1, 1, 2, 2, 3, 3, 3], batch_size=6)
    >>> len(sampler), list(sampler)
    (2, [[5, 6, 1, 0], [2, 4, 3, 8, 7, 9]])
    """

    def __init__(
        self,
        labels: Labels,
        *,
        batch_size: int = 100,
        batches_per_epoch: int | None = None,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        checks.whole("batch_size", batch_size, at_least=1)
        self._classes = Classes.of_labels(labels)
        self._batch_size = batch_size
        largest = int(self._classes.sizes.max())
        if batch_size < largest:
            raise ValueError(
                f"batch_size: expected at least {largest}, the samples of the largest class, "
                f"got {batch_size}; use a larger batch, or classes_by_samples to take a part of "
                "each class"
            )
        smallest = min(batch_size - largest + 1, len(self._classes.of))
        super().__init__(
            self._draw,
            shard=Shard(rank, world_size, smallest=smallest),
            seed=seed,
            batches_per_epoch=batches_per_epoch,
            settings={"batch_size": batch_size, "labels": self._classes.checksum},
        )

    def _draw(self, rng: np.random.Generator) -> list[NDArray[np.intp]]:
        sizes = self._classes.sizes
        owner = rng.permutation(len(sizes))
        ends = [0, *np.cumsum(sizes[owner]).tolist()]  # samples of the first 0, 1, ... classes
        cuts = [0]
        while cuts[-1] < len(owner):
            last = cuts[-1]
            cuts.append(bisect_right(ends, ends[last] + self._batch_size) - 1)
        again = rng.permutation(owner[: cuts[-2]])
        room = self._batch_size - (ends[-1] - ends[cuts[-2]])
        again = again[: np.searchsorted(np.cumsum(sizes[again]), room, side="right")]
        owner = np.concatenate([owner, again])
        samples = self._classes.windows(
            self._classes.shuffled(rng), owner, np.zeros_like(owner), sizes[owner]
        )
        return np.split(samples, [ends[cut] for cut in cuts[1:-1]])
