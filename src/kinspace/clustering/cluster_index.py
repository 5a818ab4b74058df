"""The cluster index of Magnet: clusters of each class, their impostors, the losses of samples.

Between refreshes the index says which cluster a sample is in and where the clusters are. From it a
neighborhood is drawn: a seed cluster I with probability

    p(I) proportional to the mean over the samples of I of their last loss,

and the clusters of other classes nearest to it, its impostors. A cluster none of whose samples has
been seen counts as the mean of those that have; where all losses are 0, p is uniform.

Rippel et al., Metric learning with adaptive density discrimination, ICLR 2016, sec. 3.2. Embeddings
for a refresh come from one pass of the frozen model over all samples: embeddings of different
steps mixed would ruin the index.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor

from kinspace._core import checks
from kinspace._core.vectors import squared_distances
from kinspace.clustering.kmeans import class_kmeans, cluster_numbers

__all__ = ["ClusterIndex", "nearest_impostors", "seed_probabilities"]

STATE = ("clusters", "centers", "cluster_labels", "losses", "refreshes", "disagreement")
MOMENTUM = 0.9  # of the running disagreement


def nearest_impostors(centers: Tensor, cluster_labels: Tensor, seed: int, m: int) -> Tensor:
    """The seed and its m - 1 nearest clusters of other classes, (m,), or as many as there are.

    Nearest first, the lower number where two are as near. Two of them may be of one class.

    >>> centers = torch.tensor([[0.0], [1.0], [3.0], [2.0]])
    >>> nearest_impostors(centers, torch.tensor([0, 0, 1, 2]), 0, 3)
    tensor([0, 3, 2])
    """
    checks.vectors("centers", centers)
    if cluster_labels.shape != (len(centers),):
        raise ValueError(
            f"cluster_labels: expected shape ({len(centers)},), one for each center, "
            f"got {tuple(cluster_labels.shape)}"
        )
    return _nearest_impostors(centers, centers.square().sum(1), cluster_labels, seed, m)


def _nearest_impostors(
    centers: Tensor, norms: Tensor, cluster_labels: Tensor, seed: int, m: int
) -> Tensor:
    checks.integer("m", m, at_least=1)
    if checks.integer("seed", seed, at_least=0) >= len(centers):
        raise ValueError(f"seed: expected less than {len(centers)} (the clusters), got {seed}")
    others = cluster_labels != cluster_labels[seed]
    # All by the fast product form, with bounds of its error; those in question by differences.
    with torch.autocast(centers.device.type, enabled=False):
        rough = norms - 2 * (centers @ centers[seed]) + norms[seed]
    error = (norms + norms[seed]) * (4 * centers.shape[1] * torch.finfo(centers.dtype).eps)
    upper = (rough + error).masked_fill_(~others, math.inf)
    limit = upper.topk(min(max(m - 1, 1), len(centers)), largest=False).values[-1]
    near = (others & ~(rough - error > limit)).nonzero()[:, 0]  # NaN, by overflow, stays in
    exact = (centers[near].double() - centers[seed].double()).square_().sum(1)
    near = near[exact.argsort(stable=True)[: m - 1]]
    return torch.cat([near.new_tensor([seed]), near])


def seed_probabilities(losses: Tensor, clusters: Tensor, num_clusters: int) -> Tensor:
    """Probability of each cluster to be the seed of a neighborhood, (num_clusters,).

    losses: the last loss of each sample, NaN where there is none yet.

    >>> losses = torch.tensor([1.0, 3.0, 0.0, float("nan")])
    >>> seed_probabilities(losses, torch.tensor([0, 0, 1, 2]), 3)  # means 2, 0 and, unseen, 1
    tensor([0.6667, 0.0000, 0.3333], dtype=torch.float64)
    """
    seen = ~losses.isnan()
    zeros = losses.new_zeros(num_clusters, dtype=torch.float64)
    counts = zeros.index_add(0, clusters, seen.double())
    sums = zeros.index_add(0, clusters, losses.nan_to_num(0.0).double())
    known = counts > 0
    means = sums / counts.clamp(min=1)
    typical = means[known].mean() if bool(known.any()) else means.new_ones(())
    means = torch.where(known, means, typical)
    total = means.sum()
    return means / total if total > 0 else torch.full_like(means, 1 / num_clusters)


class ClusterIndex:
    """The clusters of all classes and the last loss of every sample.

    Options as in `class_kmeans`. The tensors `clusters` (samples,), `centers` (clusters, dim) and
    `cluster_labels` (clusters,) stay on the device of the embeddings; what the methods return for
    drawing samples is on the CPU.

    >>> index = ClusterIndex(2)
    >>> x = torch.tensor([[0.0], [1.0], [8.0], [9.0], [5.0], [6.0]])
    >>> index.refresh(x, torch.tensor([0, 0, 0, 0, 7, 7]))
    >>> index.clusters, index.members(1), index.nearest_impostors(1, 3)
    (tensor([0, 0, 1, 1, 2, 3]), tensor([2, 3]), tensor([1, 3, 2]))
    >>> index.remember(torch.tensor([0, 2]), torch.tensor([0.5, 1.5]))
    >>> index.seed_probabilities()
    tensor([0.1250, 0.3750, 0.2500, 0.2500], dtype=torch.float64)
    """

    def __init__(
        self,
        clusters_per_class: int | Literal["auto"],
        *,
        max_clusters: int = 8,
        seed: int = 0,
        iterations: int = 50,
        restarts: int = 1,
    ) -> None:
        cluster_numbers(clusters_per_class, max_clusters, iterations, restarts)
        self.clusters_per_class: int | Literal["auto"] = clusters_per_class
        self.max_clusters = max_clusters
        self.seed = seed
        self.iterations = iterations
        self.restarts = restarts
        self.refreshes = 0
        self.disagreement = 0.0
        self.losses = torch.empty(0, dtype=torch.float64)  # NaN: not seen yet
        none = torch.empty(0, dtype=torch.long)
        self._place(none, torch.empty(0, 0), none)

    def refresh(self, embeddings: Tensor, labels: Tensor) -> None:
        """Cluster again. The losses stay with their samples, which are counted as before."""
        if self.refreshes and len(embeddings) != len(self.losses):
            raise ValueError(
                f"embeddings: expected {len(self.losses)} rows, the samples of the last refresh, "
                f"got {len(embeddings)}; make a new ClusterIndex for other samples"
            )
        found = class_kmeans(
            embeddings,
            labels,
            self.clusters_per_class,
            max_clusters=self.max_clusters,
            seed=self.seed + self.refreshes,
            iterations=self.iterations,
            restarts=self.restarts,
        )
        self._place(found.clusters, found.centers, found.cluster_labels)
        if not self.refreshes:
            self.losses = torch.full((len(embeddings),), math.nan, dtype=torch.float64)
        self.refreshes += 1
        self.disagreement = 0.0

    def compare(self, samples: Tensor, embeddings: Tensor) -> float:
        """Take a batch into `disagreement`, and return it.

        It is the share of samples that are nearer to another cluster of their class than to their
        own, a running mean over the batches since the last refresh, from 0.

        >>> index = ClusterIndex(2)
        >>> index.refresh(torch.tensor([[0.0], [1.0], [8.0], [9.0]]), torch.tensor([3, 3, 3, 3]))
        >>> index.compare(torch.tensor([0, 3]), torch.tensor([[7.0], [8.5]]))
        0.05
        """
        clusters = self.clusters[samples.to(self.clusters.device)]
        vectors = embeddings.detach().to(self.centers)
        squares = squared_distances(vectors, self.centers)  # (batch, clusters)
        foreign = self.cluster_labels != self.cluster_labels[clusters][:, None]
        nearest = squares.masked_fill(foreign, math.inf).min(1).values
        own = squares.gather(1, clusters[:, None])[:, 0]
        share = float((own > nearest).double().mean())
        self.disagreement = MOMENTUM * self.disagreement + (1 - MOMENTUM) * share
        return self.disagreement

    def _place(self, clusters: Tensor, centers: Tensor, cluster_labels: Tensor) -> None:
        self.clusters, self.centers, self.cluster_labels = clusters, centers, cluster_labels
        self._norms = centers.square().sum(1)
        self._clusters = clusters.cpu()
        self._order = self._clusters.argsort(stable=True)
        sizes = self._clusters.bincount(minlength=len(cluster_labels))
        self._bounds = [0, *sizes.cumsum(0).tolist()]  # of each cluster in the order

    def members(self, cluster: int) -> Tensor:
        """The samples of a cluster, in ascending order."""
        self._known("cluster", cluster)
        return self._order[self._bounds[cluster] : self._bounds[cluster + 1]]

    def nearest_impostors(self, seed: int, m: int) -> Tensor:
        """The seed and its m - 1 nearest clusters of other classes; see the function."""
        self._known("seed", seed)
        return _nearest_impostors(self.centers, self._norms, self.cluster_labels, seed, m).cpu()

    def remember(self, samples: Tensor, losses: Tensor) -> None:
        """Keep the losses (batch,) of these samples (batch,); of one named twice, the later."""
        if samples.ndim != 1 or samples.shape != losses.shape:
            raise ValueError(
                "samples, losses: expected two vectors of one length, "
                f"got {tuple(samples.shape)} and {tuple(losses.shape)}"
            )
        samples, losses = samples.cpu(), losses.detach().cpu().double()
        if not bool(((samples >= 0) & (samples < len(self.losses))).all()):
            raise ValueError(
                f"samples: expected 0 to {len(self.losses) - 1}, got {samples.tolist()}"
            )
        if not bool((losses.isfinite() & (losses >= 0)).all()):
            raise ValueError(f"losses: expected finite numbers from 0 on, got {losses.tolist()}")
        self.losses.numpy()[samples.numpy()] = losses.numpy()  # numpy keeps the last of equals

    def seed_probabilities(self) -> Tensor:
        """Probability of each cluster to be the next seed, (clusters,); see the function."""
        self._known("cluster", 0)
        return seed_probabilities(self.losses, self._clusters, len(self.cluster_labels))

    def _known(self, name: str, cluster: int) -> None:
        count = len(self.cluster_labels)
        if not count:
            raise ValueError("ClusterIndex: expected clusters; call refresh(embeddings, labels)")
        if checks.integer(name, cluster, at_least=0) >= count:
            raise ValueError(f"{name}: expected less than {count} (the clusters), got {cluster}")

    def state_dict(self) -> dict[str, Tensor | int | float]:
        """All that the next step depends on but the options, as tensors and numbers."""
        state = {name: getattr(self, name) for name in STATE}
        return state | {"losses": self.losses.clone()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state_dict`."""
        if set(state) != set(STATE):
            raise ValueError(f"state: expected {sorted(STATE)}, got {sorted(state)}")
        self._place(state["clusters"], state["centers"], state["cluster_labels"])
        self.losses = state["losses"].cpu().clone()
        self.refreshes = int(state["refreshes"])
        self.disagreement = float(state["disagreement"])
