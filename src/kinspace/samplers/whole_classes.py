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

from kinspace._core import checks
from kinspace.samplers.batch_sampler import BatchSampler, Plan
from kinspace.samplers.classes import Classes, Labels

__all__ = ["whole_classes"]


def whole_classes(
    labels: Labels,
    *,
    batch_size: int = 100,
    batches_per_epoch: int | None = None,
    seed: int = 0,
    rank: int = 0,
    world_size: int = 1,
) -> BatchSampler:
    """Batches of whole classes, at most `batch_size` samples (module docstring).

    >>> sampler = whole_classes([0, 0, 1, 1, 1, 2, 2, 3, 3, 3], batch_size=6)
    >>> len(sampler), list(sampler)
    (2, [[5, 6, 1, 0], [2, 4, 3, 8, 7, 9]])
    """
    batch_size = checks.integer("batch_size", batch_size, at_least=1)
    classes = Classes.of_labels(labels)
    largest = int(classes.sizes.max())
    if batch_size < largest:
        raise ValueError(
            f"batch_size: expected at least {largest}, the samples of the largest class, "
            f"got {batch_size}; use a larger batch, or classes_by_samples to take a part of "
            "each class"
        )

    def draw(rng: np.random.Generator) -> list[NDArray[np.intp]]:
        return _draw(classes, batch_size, rng)

    plan = Plan(
        draw,
        batch_size=min(batch_size, len(classes.of)),
        smallest=min(batch_size - largest + 1, len(classes.of)),
        settings={"batch_size": batch_size, "labels": classes.checksum},
    )
    return BatchSampler(
        plan,
        batches_per_epoch=batches_per_epoch,
        seed=seed,
        rank=rank,
        world_size=world_size,
    )


def _draw(classes: Classes, batch_size: int, rng: np.random.Generator) -> list[NDArray[np.intp]]:
    """The batches of a pass."""
    sizes = classes.sizes
    owner = rng.permutation(len(sizes))
    ends = [0, *np.cumsum(sizes[owner]).tolist()]  # samples of the first 0, 1, ... classes
    cuts = [0]
    while cuts[-1] < len(owner):
        last = cuts[-1]
        cuts.append(bisect_right(ends, ends[last] + batch_size) - 1)
    again = rng.permutation(owner[: cuts[-2]])
    room = batch_size - (ends[-1] - ends[cuts[-2]])
    again = again[: np.searchsorted(np.cumsum(sizes[again]), room, side="right")]
    owner = np.concatenate([owner, again])
    samples = classes.windows(classes.shuffled(rng), owner, np.zeros_like(owner), sizes[owner])
    return np.split(samples, [ends[cut] for cut in cuts[1:-1]])
