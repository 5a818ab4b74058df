"""Batches of pairs: two samples of each of many classes, the two side by side.

Every batch has exactly `pairs` different classes with two different samples each, what the N-pair
loss was made for. An epoch is one pass: every sample that has another of its class comes up at
least once (`kinspace.samplers.classes`). A class of one sample has no pair, and never comes
up. `len` is exact and the same for all epochs.

Sohn, Improved deep metric learning with multi-class N-pair loss objective, NIPS 2016.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kinspace._core import checks
from kinspace.samplers.batch_sampler import BatchSampler, Plan
from kinspace.samplers.classes import BalancedPlan, Classes, Labels

__all__ = ["n_pairs"]


def n_pairs(
    labels: Labels,
    *,
    pairs: int = 64,
    batches_per_epoch: int | None = None,
    seed: int = 0,
    rank: int = 0,
    world_size: int = 1,
) -> BatchSampler:
    """Batches of `pairs` classes, two samples each (module docstring).

    >>> sampler = n_pairs([0, 0, 0, 1, 1, 2, 3, 3], pairs=2)
    >>> len(sampler), list(sampler)
    (2, [[4, 3, 2, 0], [7, 6, 1, 2]])
    """
    pairs = checks.integer("pairs", pairs, at_least=1)
    of_labels = Classes.of_labels(labels)
    paired = of_labels.sizes >= 2
    if pairs > paired.sum():
        raise ValueError(
            f"pairs: expected at most {paired.sum()}, the number of classes with two samples "
            f"or more in labels, got {pairs}; ask for fewer pairs"
        )
    samples = np.flatnonzero(paired[of_labels.of])
    balanced = BalancedPlan(Classes.of_labels(of_labels.of[samples]), groups=pairs, size=2)

    def draw(rng: np.random.Generator) -> NDArray[np.intp]:
        return samples[balanced.draw(rng)]

    plan = Plan(
        draw,
        batch_size=2 * pairs,
        smallest=2 * pairs,
        settings={"pairs": pairs, "labels": of_labels.checksum},
    )
    return BatchSampler(
        plan,
        batches_per_epoch=batches_per_epoch,
        seed=seed,
        rank=rank,
        world_size=world_size,
    )
