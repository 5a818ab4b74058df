"""Magnet's batches: a contested cluster and its nearest impostors.

1. Draw a seed cluster with the index's probabilities, which follow the losses seen so far.
2. Take its M - 1 nearest impostors: clusters of other classes than the seed's. With `nearest`
   below 1 only that share of them are the nearest, the others are drawn from all further ones:
   how we read the "nearest impostor fraction" of the paper's triplets (Table 1).
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

from kinspace._core import checks
from kinspace.samplers.batch_sampler import BatchSampler, LivePass, Plan

__all__ = ["NeighborhoodIndex", "clusters_of", "neighborhoods"]


class NeighborhoodIndex(Protocol):
    """What the sampler asks of an index, such as `ClusterIndex`. No cluster may be empty."""

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

        losses = magnet_loss(embeddings, *clusters_of(index, batch), reduction="none")
        index.remember(batch, losses)
        losses.mean().backward()

    batch: the samples by their number in the set, as a Dataset gives them beside image and label.

    >>> import torch
    >>> from kinspace.clustering import ClusterIndex
    >>> index = ClusterIndex(2)
    >>> index.refresh(torch.tensor([[0.0], [9.0], [1.0], [4.0]]), torch.tensor([5, 5, 5, 8]))
    >>> clusters_of(index, torch.tensor([3, 1, 3]))
    (tensor([1, 0, 1]), tensor([5, 8]))
    """
    found, clusters = index.clusters[batch.to(index.clusters.device)].unique(return_inverse=True)
    return clusters, index.cluster_labels[found]


def neighborhoods(  # noqa: PLR0913 (an option each)
    index: NeighborhoodIndex,
    *,
    clusters: int = 12,
    samples: int = 4,
    nearest: float = 1.0,
    batches_per_epoch: int | None = None,
    seed: int = 0,
    rank: int = 0,
    world_size: int = 1,
) -> BatchSampler:
    """Batches of `clusters` x `samples` out of a cluster index (module docstring).

    >>> import torch
    >>> from kinspace.clustering import ClusterIndex
    >>> index = ClusterIndex(1)
    >>> index.refresh(torch.eye(5), torch.tensor([0, 0, 0, 1, 1]))
    >>> list(neighborhoods(index, clusters=2, samples=2))
    [[2, 1, 4, 3], [1, 2, 4, 3]]
    """
    clusters = checks.integer("clusters", clusters, at_least=2)
    samples = checks.integer("samples", samples, at_least=1)
    if checks.number("nearest", nearest, at_least=0) > 1:
        raise ValueError(f"nearest: expected a share from 0 to 1, got {nearest!r}")
    near = round(nearest * (clusters - 1))

    def batch(rng: np.random.Generator) -> NDArray[np.intp]:
        return _batch(index, clusters, samples, near, rng)

    def draw(rng: np.random.Generator) -> LivePass:
        _check_that_a_batch_can_be_filled(index, clusters)
        length = -(-len(index.clusters) // (clusters * samples))
        return LivePass(batch, rng.integers(2**63, size=length))

    plan = Plan(
        draw,
        batch_size=clusters * samples,
        smallest=clusters * samples,
        settings={"clusters": clusters, "samples": samples, "nearest": near},
        group=samples,
        live=True,
    )
    return BatchSampler(
        plan,
        batches_per_epoch=batches_per_epoch,
        seed=seed,
        rank=rank,
        world_size=world_size,
    )


def _check_that_a_batch_can_be_filled(index: NeighborhoodIndex, clusters: int) -> None:
    labels = index.cluster_labels
    if len(labels) == 0:
        raise ValueError("index: expected clusters, got none; call its refresh first")
    most = len(labels) - int(labels.unique(return_counts=True)[1].max()) + 1
    if most < clusters:
        raise ValueError(
            f"clusters: expected at most {most}, a seed and the clusters of all other classes, "
            f"got {clusters}; ask for fewer clusters, or for more a class in the index"
        )


def _batch(
    index: NeighborhoodIndex, clusters: int, samples: int, near: int, rng: np.random.Generator
) -> NDArray[np.intp]:
    """One neighborhood. near: how many impostors are the nearest."""
    steps = np.cumsum(index.seed_probabilities().double().cpu().numpy())
    # side="right" and a draw under the total: a seed of probability 0 is never drawn
    seed = int(np.searchsorted(steps, rng.random() * steps[-1], side="right"))
    chosen = index.nearest_impostors(seed, near + 1).tolist()
    if len(chosen) < clusters:
        labels = index.cluster_labels.cpu().numpy()
        further = np.setdiff1d((labels != labels[seed]).nonzero()[0], chosen)
        chosen += rng.choice(further, clusters - len(chosen), replace=False).tolist()
    groups = [index.members(cluster).cpu().numpy() for cluster in chosen]
    if not all(map(len, groups)):
        raise ValueError(f"index: expected no cluster without a sample, got one of {chosen}")
    return np.concatenate([rng.choice(group, samples, len(group) < samples) for group in groups])
