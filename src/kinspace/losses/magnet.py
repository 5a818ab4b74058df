"""Magnet loss: classes as several clusters, whole neighborhoods of clusters as batches.

    V    = sum_n ||r_n - mu_{a(n)}||^2 / (s (N - 1)) + eps
    loss = mean_n relu( ||r_n - mu_{a(n)}||^2/(2V) + alpha
                        + log sum_{k: class_k != class_n} exp(-||r_n - mu_k||^2/(2V)) )

mu_k is the mean of the batch's samples of cluster k and a(n) the cluster of sample n; the gradient
passes through mu and V. alpha is the gap between clusters in units of V. A sample with no cluster
of another class in the batch has term 0. Clusters without a sample in the batch are left out.

s, `sharpness`, is ours, 1 in print. V is summed over all dimensions and the first term is s/2 on
average, wherever the samples are: with s = 1 and hundreds of dimensions, clusters that overlap are
nearly equally far from a sample, and the sum over impostors pushes all of them alike, also the far
ones that need no push. A larger s pushes the nearest.

Rippel et al., Metric learning with adaptive density discrimination, ICLR 2016, Eq. 5.

Deviation from print: below Eq. 5 the paper names the variance "sigma-hat" and then uses its square.
That destroys the invariance to scale the paper claims (Eq. 4 has it) and saturates with zero
gradient on normalized embeddings. Here V enters once. eps keeps a batch of V = 0 finite.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.tensor_ops import REDUCTIONS, full_precision, log_sum_exp, reduce
from kinspace.losses.clusters import (
    checked_clusters,
    cluster_variance,
    given_clusters,
    scaled_distances,
)

__all__ = ["Magnet", "magnet_loss"]


@full_precision
@takes_options(
    alpha=checks.number,
    eps=checks.at_least(0),
    sharpness=checks.positive,
    reduction=checks.one_of(REDUCTIONS),
)
def magnet_loss(
    embeddings: Tensor,
    clusters: Tensor,
    cluster_labels: Tensor,
    *,
    alpha: float = 1.0,
    eps: float = 1e-8,
    sharpness: float = 1.0,
    reduction: str = "mean",
) -> Tensor:
    """Magnet loss (module docstring).

    clusters: for each sample its row in cluster_labels; cluster_labels: the class of each cluster.

    Means 0 and 2, V = 4/3: the inner samples are as far from the other mean as from their own,
    1/(2V), and have term 1; the outer ones are at 9/(2V) from the other and have term 0.

    >>> x = torch.tensor([[-1.0], [1.0], [1.0], [3.0]])
    >>> magnet_loss(x, torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1]), alpha=1.0)
    tensor(0.5000)
    """
    clusters, cluster_labels = checked_clusters(embeddings, clusters, cluster_labels)
    distances = scaled_distances(
        embeddings, clusters, len(cluster_labels), eps=eps, sharpness=sharpness
    )  # (batch, clusters)
    return reduce(_terms(distances, clusters, cluster_labels, alpha), reduction)


def _terms(distances: Tensor, clusters: Tensor, cluster_labels: Tensor, alpha: float) -> Tensor:
    """The loss of each sample, from its scaled distances to all clusters."""
    own = distances.gather(1, clusters[:, None])[:, 0]
    impostors = cluster_labels != cluster_labels[clusters][:, None]  # (batch, clusters)
    return (own + alpha + log_sum_exp(-distances, impostors)).relu()


class Magnet(nn.Module):
    """`magnet_loss` as a module, with the running variance that kNC needs (Eq. 6).

    Without `clusters` every class of the batch is one cluster. In training `variance` follows the
    batches' V: their average at first, an exponential one with `momentum` later. With
    reduction="none" the values are what a neighborhood sampler chooses its seeds by.

    >>> criterion = Magnet(alpha=1.0)
    >>> x = torch.tensor([[-1.0], [1.0], [1.0], [3.0]])
    >>> criterion(x, torch.tensor([4, 4, 9, 9])), criterion.variance
    (tensor(0.5000), tensor(1.3333))
    """

    __call__: Callable[..., Tensor]
    takes = "clusters"
    variance: Tensor
    batches: Tensor
    sharpness: float

    def __init__(
        self,
        *,
        alpha: float = 1.0,
        eps: float = 1e-8,
        sharpness: float = 1.0,
        momentum: float = 0.99,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        keep_options(
            self, magnet_loss, alpha=alpha, eps=eps, sharpness=sharpness, reduction=reduction
        )
        self.momentum = checks.number("momentum", momentum, at_least=0)
        if momentum >= 1:
            raise ValueError(f"momentum: expected less than 1, got {momentum!r}")
        self.register_buffer("variance", torch.zeros(()))
        self.register_buffer("batches", torch.zeros((), dtype=torch.long))

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        clusters: Tensor | None = None,
        cluster_labels: Tensor | None = None,
    ) -> Tensor:
        clusters, cluster_labels = checked_clusters(
            embeddings, *given_clusters(embeddings, labels, clusters, cluster_labels)
        )
        if self.training:
            self._follow(embeddings, clusters, len(cluster_labels))
        return magnet_loss(embeddings, clusters, cluster_labels, **kept_options(self))

    @torch.no_grad()
    def _follow(self, embeddings: Tensor, clusters: Tensor, count: int) -> None:
        """Take the V of a batch into the running one."""
        variance = cluster_variance(embeddings, clusters, count) / self.sharpness
        self.batches += 1
        shares = self.batches.clamp(max=1 / (1 - self.momentum))  # each batch has one over these
        self.variance += (variance.to(self.variance.dtype) - self.variance) / shares

    def extra_repr(self) -> str:
        return options_repr(self, "alpha", "eps", "sharpness", "momentum", "reduction")
