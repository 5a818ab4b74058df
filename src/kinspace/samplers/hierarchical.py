"""Batches of classes that are related: of a few parents, several classes each.

The classes of a set have parents: makes of cars, families of birds, categories of products. A batch
has `parents_per_batch` of them, of each `classes` classes with `samples` samples: negatives of the
same parent are hard, those of another are not.

An epoch is one pass: every sample comes up at least once. The samples of each parent are shared
out to parts of batches as by `classes_by_samples`; parts of different parents make a batch, those
of the parents with the most left first. At the end it is filled up with parts of other parents
drawn again. `len` is exact and the same for all epochs.

Cakir et al., Deep metric learning to rank, CVPR 2019, take batches of two categories of Stanford
Online Products.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kinspace._core import checks
from kinspace.samplers.batch_sampler import BatchSampler, Plan
from kinspace.samplers.classes import BalancedPlan, Classes, Labels

__all__ = ["hierarchical"]

Ints = NDArray[np.intp]


def hierarchical(  # noqa: PLR0913 (an option each)
    labels: Labels,
    parents: Labels,
    *,
    parents_per_batch: int = 2,
    classes: int = 8,
    samples: int = 4,
    batches_per_epoch: int | None = None,
    seed: int = 0,
    rank: int = 0,
    world_size: int = 1,
) -> BatchSampler:
    """Batches of `parents_per_batch` x `classes` x `samples` (module docstring).

    labels, parents: the class and the parent of each sample.

    >>> labels, parents = [0, 0, 1, 1, 2, 2, 3, 3], [0, 0, 0, 0, 1, 1, 1, 1]
    >>> sampler = hierarchical(labels, parents, classes=1, samples=2)
    >>> len(sampler), [[parents[number] for number in batch] for batch in sampler]
    (2, [[0, 0, 1, 1], [0, 0, 1, 1]])
    """
    parents_per_batch = checks.integer("parents_per_batch", parents_per_batch, at_least=1)
    classes = checks.integer("classes", classes, at_least=1)
    samples = checks.integer("samples", samples, at_least=1)
    of_labels, of_parents = Classes.of_labels(labels), Classes.of_labels(parents)
    if len(of_parents.of) != len(of_labels.of):
        raise ValueError(
            f"parents: expected {len(of_labels.of)}, one for each of the labels, "
            f"got {len(of_parents.of)}"
        )
    if parents_per_batch > len(of_parents.sizes):
        raise ValueError(
            f"parents_per_batch: expected at most {len(of_parents.sizes)}, the number of parents, "
            f"got {parents_per_batch}"
        )
    parts = [
        _Part(np.flatnonzero(of_parents.of == parent), of_labels.of, classes, samples)
        for parent in range(len(of_parents.sizes))
    ]

    def draw(rng: np.random.Generator) -> list[Ints]:
        return _draw(parts, parents_per_batch, rng)

    size = parents_per_batch * classes * samples
    settings = {"parents_per_batch": parents_per_batch, "classes": classes, "samples": samples}
    settings |= {"labels": of_labels.checksum, "parents": of_parents.checksum}
    return BatchSampler(
        Plan(draw, batch_size=size, smallest=size, settings=settings),
        batches_per_epoch=batches_per_epoch,
        seed=seed,
        rank=rank,
        world_size=world_size,
    )


class _Part:
    """The samples of a parent, shared out to parts of batches."""

    def __init__(self, members: Ints, labels: Ints, classes: int, samples: int) -> None:
        self._members = members
        own = Classes.of_labels(labels[members])
        most = int(np.minimum(own.sizes, samples).sum())
        if classes > len(own.sizes) or classes * samples > most:
            raise ValueError(
                f"classes: expected parents of {classes} x {samples} samples or more, got one of "
                f"{len(own.sizes)} classes that has {most} with {samples} of each at most; ask for "
                "fewer classes or samples, or leave small parents out"
            )
        self._plan = BalancedPlan(own, groups=classes, size=samples)
        self.batches = self._plan.batches

    def draw(self, rng: np.random.Generator) -> Ints:
        """All parts of a pass, (batches, classes * samples)."""
        return self._members[self._plan.draw(rng)]


def _draw(parts: list[_Part], together: int, rng: np.random.Generator) -> list[Ints]:
    """The batches of a pass."""
    drawn = [part.draw(rng) for part in parts]
    left = np.array([part.batches for part in parts])
    batches = []
    while left.any():
        mixed = rng.permutation(len(parts))
        chosen = mixed[np.argsort(-left[mixed], kind="stable")][:together]  # the most left first
        rows = [  # one that is left, or any again
            drawn[parent][left[parent] - 1 if left[parent] else rng.integers(len(drawn[parent]))]
            for parent in chosen
        ]
        left[chosen] = np.maximum(left[chosen] - 1, 0)
        batches.append(np.concatenate(rows))
    return [batches[place] for place in rng.permutation(len(batches))]
