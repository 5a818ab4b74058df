"""Batch samplers: which samples make a batch. `SAMPLERS` maps names to functions.

    loader = DataLoader(data, batch_sampler=classes_by_samples(labels, classes=16, samples=8))

Every function returns a `BatchSampler`: `kinspace.samplers.batch_sampler` says what an epoch is,
how a run continues in the middle of one, and how several processes share a batch.
"""

from collections.abc import Callable

from kinspace.samplers.batch_sampler import BatchSampler, Plan
from kinspace.samplers.classes_by_samples import classes_by_samples
from kinspace.samplers.hierarchical import hierarchical
from kinspace.samplers.n_pairs import n_pairs
from kinspace.samplers.neighborhoods import NeighborhoodIndex, clusters_of, neighborhoods
from kinspace.samplers.random import random
from kinspace.samplers.whole_classes import whole_classes

__all__ = [
    "SAMPLERS",
    "BatchSampler",
    "NeighborhoodIndex",
    "Plan",
    "classes_by_samples",
    "clusters_of",
    "hierarchical",
    "n_pairs",
    "neighborhoods",
    "random",
    "whole_classes",
]

# Those of a recipe. All but neighborhoods take the labels of the training set; that one takes a
# cluster index. (`hierarchical` takes the parents of the classes too, which no recipe has.)
SAMPLERS: dict[str, Callable[..., BatchSampler]] = {
    "classes_by_samples": classes_by_samples,
    "whole_classes": whole_classes,
    "n_pairs": n_pairs,
    "random": random,
    "neighborhoods": neighborhoods,
}
