"""Batches of m classes x n samples.

Every batch has exactly m * n samples, all different. Each of its classes has n samples; a class of
fewer than n is taken whole, and more classes fill the batch up. Only the last of these may be cut
to fit. Where all classes have n samples or more, that is exactly m different classes x n.

An epoch is one pass: every sample comes up at least once, and only as many more than once as it
takes to fill groups and batches (`kinspace.samplers.classes` shares the groups out). One
class much larger than the rest makes an epoch long, as no batch has it twice and the others come up
again and again: `batches_per_epoch` makes epochs of any length. `len` is exact and the same for
all epochs.

Schall et al. call it n-group sampling: NRA takes batches of 16 x 8 and, on Stanford Online
Products, 32 x 4. ALMN uses 26 x 5, DML-DA 10 x 10.
"""

from __future__ import annotations

import numpy as np

from kinspace._core import checks
from kinspace.samplers.batch_sampler import BatchSampler, Plan
from kinspace.samplers.classes import BalancedPlan, Classes, Labels

__all__ = ["classes_by_samples"]


def classes_by_samples(
    labels: Labels,
    *,
    classes: int = 16,
    samples: int = 8,
    batches_per_epoch: int | None = None,
    seed: int = 0,
    rank: int = 0,
    world_size: int = 1,
) -> BatchSampler:
    """Batches of `classes` x `samples` (module docstring).

    >>> sampler = classes_by_samples([0, 0, 0, 1, 1, 2, 2], classes=2, samples=2)
    >>> len(sampler), list(sampler)
    (2, [[4, 3, 2, 0], [6, 5, 1, 2]])
    """
    classes = checks.integer("classes", classes, at_least=1)
    samples = checks.integer("samples", samples, at_least=1)
    of_labels = Classes.of_labels(labels)
    _check_that_a_batch_can_be_filled(of_labels, classes, samples)
    plan = Plan(
        BalancedPlan(of_labels, groups=classes, size=samples).draw,
        batch_size=classes * samples,
        smallest=classes * samples,
        settings={"classes": classes, "samples": samples, "labels": of_labels.checksum},
    )
    return BatchSampler(
        plan,
        batches_per_epoch=batches_per_epoch,
        seed=seed,
        rank=rank,
        world_size=world_size,
    )


def _check_that_a_batch_can_be_filled(of_labels: Classes, classes: int, samples: int) -> None:
    there_are = len(of_labels.sizes)
    if classes > there_are:
        raise ValueError(
            f"classes: expected at most {there_are}, the number of classes in labels, "
            f"got {classes}; ask for fewer classes, and for more samples of each to keep the batch"
        )
    most = int(np.minimum(of_labels.sizes, samples).sum())
    if classes * samples > most:
        raise ValueError(
            f"samples: expected a batch of at most {most} samples, {samples} or fewer of every "
            f"class in labels, got {classes} x {samples} = {classes * samples}; ask for fewer "
            "samples or fewer classes"
        )
