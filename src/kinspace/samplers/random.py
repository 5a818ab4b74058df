"""Batches of a shuffled set, whatever the classes.

An epoch is one pass: every sample comes up once. The last batch is smaller where the batch size
does not divide the samples; `drop_last` leaves it out, and with it fewer than `batch_size` samples
an epoch, others each time. `len` is exact and the same for all epochs.

Proxy losses and the skewed-mean regularizer are trained on these.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kinspace._core import checks
from kinspace.samplers.batch_sampler import BatchSampler, Plan
from kinspace.samplers.classes import Classes, Labels

__all__ = ["random"]


def random(
    labels: Labels,
    *,
    batch_size: int = 128,
    drop_last: bool = False,
    batches_per_epoch: int | None = None,
    seed: int = 0,
    rank: int = 0,
    world_size: int = 1,
) -> BatchSampler:
    """Batches of `batch_size` shuffled samples; only the number of labels matters.

    >>> sampler = random([0, 0, 1, 1, 2], batch_size=2)
    >>> len(sampler), list(sampler)
    (3, [[2, 4], [3, 0], [1]])
    """
    batch_size = checks.integer("batch_size", batch_size, at_least=1)
    classes = Classes.of_labels(labels)
    samples = len(classes.of)
    rest = samples % batch_size
    used = samples - rest if drop_last else samples
    if used == 0:
        raise ValueError(
            f"batch_size: expected at most {samples}, the number of samples, with "
            f"drop_last, got {batch_size}; use smaller batches or drop_last=False"
        )

    def draw(rng: np.random.Generator) -> list[NDArray[np.intp]]:
        return np.split(rng.permutation(samples)[:used], range(batch_size, used, batch_size))

    plan = Plan(
        draw,
        batch_size=min(batch_size, samples),
        smallest=batch_size if drop_last or not rest else rest,
        settings={"batch_size": batch_size, "drop_last": drop_last, "labels": classes.checksum},
    )
    return BatchSampler(
        plan,
        batches_per_epoch=batches_per_epoch,
        seed=seed,
        rank=rank,
        world_size=world_size,
    )
