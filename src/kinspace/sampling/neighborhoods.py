"""Magnet's batches: a contested cluster and its nearest impostors.

1. Draw a seed cluster with the index's probabilities, which follow the losses seen so far.
2. Take its M - 1 nearest impostors: clusters of other classes than the seed's.
3. Draw D samples of each cluster, uniformly, without replacement where it has D.

An epoch draws as many samples as the set has, to a whole batch. Which ones, the losses decide: not
every sample or class has to come up. `len` is exact and the same for all epochs.

A batch is drawn when it is asked for, from the index as it is then: a DataLoader with workers asks
some batches ahead, and those few do not know the latest losses. They are saved with the position;
the index saves its own state. Both of the same step give exactly the next batch, drawn ahead or
not. Each of several processes has to tell its index the same losses, those of the gathered batch.

Rippel et al., Metric learning with adaptive density discrimination, ICLR 2016, section 3.2.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from kinspace import checks
from kinspace.sampling.epochs import Epochs, LivePass
from kinspace.sampling.sharding import Shard

__all__ = ["NeighborhoodIndex", "Neighborhoods", "clusters_of"]


class NeighborhoodIndex(Protocol):
    """What is asked of an index, as `kinspace.clusters.ClusterIndex` is one. No empty clusters."""

    @property
    def clusters(self) -> Tensor:
        """The cluster of each sample, (samples,)."""

    @property
    def cluster_labels(self) -> Tensor:
        """The class of each cluster, (clusters,)."""

    def members(self, cluster: int) -> Tensor:
        """The samples of a cluster."""

    def nearest_impostors(self, seed: int, m: int) -> Tensor:
        """The seed and its m - 1 nearest clusters of other classes, (m,)."""

    def seed_probabilities(self) -> Tensor:
        """How likely each cluster is a seed, (clusters,)."""


def clusters_of(index: NeighborhoodIndex, batch: Tensor) -> tuple[Tensor, Tensor]:
    """The batch's clusters, numbered from 0, and their classes: as `magnet_loss` takes them.

        terms = magnet_terms(embeddings, *clusters_of(index, batch))
        index.remember(batch, terms)

    batch: the samples by their number in the set, as a Dataset gives them beside image and label.

    >>> import torch
    >>> from kinspace.clusters import ClusterIndex
    >>> index = ClusterIndex(2)
    >>> index.refresh(torch.tensor([[0.0], [9.0], [1.0], [4.0]]), torch.tensor([5, 5, 5, 8]))
    >>> clusters_of(index, torch.tensor([3, 1, 3]))
    (tensor([1, 0, 1]), tensor([5, 8]))
    """
    found, clusters = index.clusters[batch.to(index.clusters.device)].unique(return_inverse=True)
    return clusters, index.cluster_labels[found]


class Neighborhoods(Epochs):
    """Batches of `clusters` x `samples` out of a cluster index (module docstring).

    >>> import torch
    >>> from kinspace.clusters import ClusterIndex
    >>> index = ClusterIndex(1)
    >>> index.refresh(torch.eye(5), torch.tensor([0, 0, 0, 1, 1]))
    >>> list(Neighborhoods(index, clusters=2, samples=2))
    [[2, 1, 4, 3], [1, 2, 4, 3]]
    """

    def __init__(
        self,
        index: NeighborhoodIndex,
        *,
        clusters: int = 12,
        samples: int = 4,
        batches_per_epoch: int | None = None,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        self._index = index
        self._clusters = checks.whole("clusters", clusters, at_least=2)
        self._samples = checks.whole("samples", samples, at_least=1)
        super().__init__(
            self._draw,
            shard=Shard(rank, world_size, clusters * samples, group=samples),
            seed=seed,
            batches_per_epoch=batches_per_epoch,
            settings={"clusters": clusters, "samples": samples},
            live=True,
        )

    def _draw(self, rng: np.random.Generator) -> LivePass:
        labels = self._index.cluster_labels
        if len(labels) == 0:
            raise ValueError("index: expected clusters, got none; call its refresh first")
        most = len(labels) - int(labels.unique(return_counts=True)[1].max()) + 1
        if most < self._clusters:
            raise ValueError(
                f"clusters: expected at most {most}, a seed and the clusters of all other classes, "
                f"got {self._clusters}; ask for fewer clusters, or for more a class in the index"
            )
        length = -(-len(self._index.clusters) // (self._clusters * self._samples))
        return LivePass(self._batch, rng.integers(2**63, size=length))

    def _batch(self, rng: np.random.Generator) -> NDArray[np.intp]:
        steps = np.cumsum(self._index.seed_probabilities().double().cpu().numpy())
        # side="right" and a draw under the total: a seed of probability 0 is never drawn
        seed = int(np.searchsorted(steps, rng.random() * steps[-1], side="right"))
        chosen = self._index.nearest_impostors(seed, self._clusters).tolist()
        groups = [self._index.members(cluster).cpu().numpy() for cluster in chosen]
        if not all(map(len, groups)):
            raise ValueError(f"index: expected no cluster without a sample, got one of {chosen}")
        count = self._samples
        return np.concatenate([rng.choice(group, count, len(group) < count) for group in groups])
