"""Batches of a shuffled set, whatever the classes.

An epoch is one pass: every sample comes up once. The last batch is smaller where the batch size
does not divide the samples; `drop_last` leaves it out, and with it fewer than `batch_size` samples
an epoch, others each time. `len` is exact and the same for all epochs.

Proxy losses and the skewed-mean regularizer are trained on these.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kinspace import checks
from kinspace.sampling.classes import Classes, Labels
from kinspace.sampling.epochs import Epochs
from kinspace.sampling.sharding import Shard

__all__ = ["Random"]


class Random(Epochs):
    """Batches of `batch_size` shuffled samples; only the number of labels matters.

    >>> sampler = Random([0, 0, 1, 1, 2], batch_size=2)
    >>> len(sampler), list(sampler)
    (3, [[2, 4], [3, 0], [1]])
    """

    def __init__(
        self,
        labels: Labels,
        *,
        batch_size: int = 128,
        drop_last: bool = False,
        batches_per_epoch: int | None = None,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        checks.whole("batch_size", batch_size, at_least=1)
        classes = Classes.of_labels(labels)
        self._samples = len(classes.of)
        self._batch_size = batch_size
        rest = self._samples % batch_size
        self._used = self._samples - rest if drop_last else self._samples
        if self._used == 0:
            raise ValueError(
                f"batch_size: expected at most {self._samples}, the number of samples, with "
                f"drop_last, got {batch_size}; use smaller batches or drop_last=False"
            )
        super().__init__(
            self._draw,
            shard=Shard(rank, world_size, smallest=batch_size if drop_last or not rest else rest),
            seed=seed,
            batches_per_epoch=batches_per_epoch,
            settings={
                "batch_size": batch_size,
                "drop_last": drop_last,
                "labels": classes.checksum,
            },
        )

    def _draw(self, rng: np.random.Generator) -> list[NDArray[np.intp]]:
        order = rng.permutation(self._samples)[: self._used]
        return np.split(order, range(self._batch_size, self._used, self._batch_size))
