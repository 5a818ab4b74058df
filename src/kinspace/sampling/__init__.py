"""Batch samplers: which samples make a batch. `SAMPLERS` maps names to classes.

    loader = DataLoader(data, batch_sampler=ClassesBySamples(labels, classes=16, samples=8))

`kinspace.sampling.epochs` says what an epoch is and how a run goes on in the middle of one,
`kinspace.sampling.sharding` how several processes share a batch.
"""

from kinspace.sampling.classes_by_samples import ClassesBySamples
from kinspace.sampling.epochs import BatchSampler
from kinspace.sampling.n_pairs import NPairs
from kinspace.sampling.neighborhoods import NeighborhoodIndex, Neighborhoods, clusters_of
from kinspace.sampling.random import Random
from kinspace.sampling.whole_classes import WholeClasses

__all__ = [
    "SAMPLERS",
    "BatchSampler",
    "ClassesBySamples",
    "NPairs",
    "NeighborhoodIndex",
    "Neighborhoods",
    "Random",
    "WholeClasses",
    "clusters_of",
]

# All but neighborhoods take the labels of the training set; that one takes a cluster index.
SAMPLERS: dict[str, type] = {
    "classes_by_samples": ClassesBySamples,
    "whole_classes": WholeClasses,
    "n_pairs": NPairs,
    "random": Random,
    "neighborhoods": Neighborhoods,
}
