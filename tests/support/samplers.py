"""Samplers to test: each kind on sets of different balance."""

import json
from dataclasses import dataclass
from itertools import islice
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pytest
import torch

from kinspace.clustering import ClusterIndex
from kinspace.samplers import SAMPLERS, BatchSampler, hierarchical


def labels_of(sizes: list[int]) -> np.ndarray:
    """Labels of classes of these sizes, the samples in mixed order, the labels with gaps."""
    labels = np.repeat(3 * np.arange(len(sizes)) + 1, sizes)
    return np.random.default_rng(0).permutation(labels)


def parents_of(labels: np.ndarray) -> np.ndarray:
    """Three parents: the classes in turn."""
    return labels // 3 % 3


BALANCED = [8] * 12
LONG_TAIL = [40, 25, 17, 11, 9, 7, 5, 4, 3, 3, 2, 2, 2, 1, 1]
ONE_HUGE = [90, 6, 5, 5, 4, 3, 2]


def index_of(sizes: list[int]) -> ClusterIndex:
    """A cluster index of these classes, up to two clusters each."""
    labels = torch.from_numpy(labels_of(sizes))
    generator = torch.Generator().manual_seed(0)
    index = ClusterIndex(2)
    index.refresh(torch.randn(len(labels), 3, generator=generator), labels)
    return index


# The index that a sampler of neighborhoods was built on: a training step tells it the losses.
INDEX_OF: WeakKeyDictionary[BatchSampler, ClusterIndex] = WeakKeyDictionary()


def remember(index: ClusterIndex, batch: list[int]) -> None:
    """Losses that depend on the batch, as those of a training step do."""
    samples = torch.tensor(batch)
    index.remember(samples, index.losses[samples].nan_to_num(1.0) / 2 + 0.01 * (samples % 7))


@dataclass(frozen=True)
class Case:
    """A sampler on a set; `build(**options)` adds seed, rank and so on."""

    name: str
    sizes: list[int]
    options: dict[str, Any]
    never: int = 0  # samples that no batch of this composition can hold, or that it leaves out
    covers: bool = True  # false: the losses decide what comes up

    def build(self, **options: Any) -> BatchSampler:
        if self.name == "hierarchical":
            labels = labels_of(self.sizes)
            return hierarchical(labels, parents_of(labels), **(self.options | options))
        first = index_of(self.sizes) if self.name == "neighborhoods" else labels_of(self.sizes)
        sampler = SAMPLERS[self.name](first, **(self.options | options))
        if isinstance(first, ClusterIndex):
            INDEX_OF[sampler] = first
        return sampler

    def remember(self, sampler: BatchSampler, batch: list[int]) -> None:
        if sampler in INDEX_OF:
            remember(INDEX_OF[sampler], batch)

    def save(self, sampler: BatchSampler) -> tuple[Any, Any]:
        index = INDEX_OF[sampler].state_dict() if sampler in INDEX_OF else None
        return json.loads(json.dumps(sampler.state_dict())), index

    def resume(self, saved: tuple[Any, Any], **options: Any) -> BatchSampler:
        sampler = self.build(**options)
        sampler.load_state_dict(saved[0])
        if saved[1] is not None:
            INDEX_OF[sampler].load_state_dict(saved[1])
        return sampler


CASES: dict[str, list[Case]] = {
    "classes_by_samples": [
        Case("classes_by_samples", BALANCED, {"classes": 4, "samples": 3}),
        Case("classes_by_samples", LONG_TAIL, {"classes": 3, "samples": 4}),
        Case("classes_by_samples", ONE_HUGE, {"classes": 4, "samples": 3}),
    ],
    "whole_classes": [
        Case("whole_classes", BALANCED, {"batch_size": 20}),
        Case("whole_classes", LONG_TAIL, {"batch_size": 44}),
        Case("whole_classes", ONE_HUGE, {"batch_size": 95}),
    ],
    "n_pairs": [
        Case("n_pairs", BALANCED, {"pairs": 5}),
        Case("n_pairs", LONG_TAIL, {"pairs": 6}, never=2),
        Case("n_pairs", ONE_HUGE, {"pairs": 7}),
    ],
    "random": [
        Case("random", BALANCED, {"batch_size": 15}),
        Case("random", LONG_TAIL, {"batch_size": 9}),
        Case("random", LONG_TAIL, {"batch_size": 9, "drop_last": True}, never=sum(LONG_TAIL) % 9),
    ],
    "hierarchical": [
        Case("hierarchical", BALANCED, {"classes": 2, "samples": 3}),
        Case("hierarchical", LONG_TAIL, {"parents_per_batch": 3, "classes": 2, "samples": 4}),
        Case("hierarchical", ONE_HUGE, {"classes": 1, "samples": 2}),
    ],
    "neighborhoods": [
        Case("neighborhoods", BALANCED, {"clusters": 5, "samples": 3}, covers=False),
        Case("neighborhoods", LONG_TAIL, {"clusters": 4, "samples": 4}, covers=False),
    ],
}
ALL = [
    pytest.param(case, id=f"{name}-{number}")
    for name, cases in CASES.items()
    for number, case in enumerate(cases)
]


def trained(case: Case, sampler: BatchSampler, steps: int) -> list[list[int]]:
    """The batches of so many training steps, over as many epochs as they take."""
    batches: list[list[int]] = []
    while len(batches) < steps:
        for batch in islice(sampler, steps - len(batches)):
            batches.append(batch)
            case.remember(sampler, batch)
            sampler.advance()
    return batches
