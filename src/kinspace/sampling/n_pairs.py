"""Batches of pairs: two samples of each of many classes, the two side by side.

Every batch has exactly `pairs` different classes with two different samples each, what the N-pair
loss was made for. An epoch is one pass: every sample that has another of its class comes up at
least once (`kinspace.sampling.dealing`). A class of one sample has no pair and never comes up;
`left_out` counts those samples. `len` is exact and the same for all epochs.

Sohn, Improved deep metric learning with multi-class N-pair loss objective, NIPS 2016.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kinspace import checks
from kinspace.sampling.classes import Classes, Labels
from kinspace.sampling.dealing import Dealer
from kinspace.sampling.epochs import Epochs
from kinspace.sampling.sharding import Shard

__all__ = ["NPairs"]


class NPairs(Epochs):
    """Batches of `pairs` classes, two samples each (module docstring).

    >>> sampler = NPairs([0, 0, 0, 1, 1, 2, 3, 3], pairs=2)
    >>> sampler.left_out, len(sampler), list(sampler)
    (1, 2, [[4, 3, 2, 0], [7, 6, 1, 2]])
    """

    def __init__(
        self,
        labels: Labels,
        *,
        pairs: int = 64,
        batches_per_epoch: int | None = None,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        checks.whole("pairs", pairs, at_least=1)
        of_labels = Classes.of_labels(labels)
        paired = of_labels.sizes >= 2
        if pairs > paired.sum():
            raise ValueError(
                f"pairs: expected at most {paired.sum()}, the number of classes with two samples "
                f"or more in labels, got {pairs}; ask for fewer pairs"
            )
        self._samples = np.flatnonzero(paired[of_labels.of])
        self.left_out = len(of_labels.of) - len(self._samples)
        self._dealer = Dealer(Classes.of_labels(of_labels.of[self._samples]), groups=pairs, size=2)
        super().__init__(
            self._draw,
            shard=Shard(rank, world_size, smallest=2 * pairs),
            seed=seed,
            batches_per_epoch=batches_per_epoch,
            settings={"pairs": pairs, "labels": of_labels.checksum},
        )

    def _draw(self, rng: np.random.Generator) -> NDArray[np.intp]:
        return self._samples[self._dealer.draw(rng)]
