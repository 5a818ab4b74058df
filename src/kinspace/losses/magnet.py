"""Magnet loss: classes as several clusters, whole neighborhoods of clusters as batches.

    V    = sum_n ||r_n - mu_{a(n)}||^2 / (s (N - 1)) + eps
    loss = mean_n relu( ||r_n - mu_{a(n)}||^2/(2V) + alpha
                        + log sum_{k: class_k != class_n} exp(-||r_n - mu_k||^2/(2V)) )

mu_k is the mean of the batch's samples of cluster k and a(n) the cluster of sample n; the gradient
passes through mu and V. alpha is the gap between clusters in units of V. A sample with no cluster
of another class in the batch has term 0. Clusters without a sample in the batch are left out.

s, `sharpness`, is ours, 1 in print. V is summed over all dimensions and the first term is s/2 on
average, wherever the samples are: with s = 1 and hundreds of dimensions clusters that overlap are
nearly equally far from a sample, and the sum over impostors pushes all of them alike, the far ones
that need no push as well. A larger s makes it a push on the nearest.

Rippel et al., Metric learning with adaptive density discrimination, ICLR 2016, Eq. 5.

Where we deviate from the print: below Eq. 5 the paper names the variance "sigma-hat" and then uses
its square. That destroys the invariance to scale the paper claims (Eq. 4 has it) and saturates with
zero gradient on normalized embeddings. Here V enters once. eps keeps a batch of V = 0 finite.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from kinspace import checks
from kinspace.losses.cluster_means import (
    by_kernels,
    checked_clusters,
    cluster_logits,
    fused_terms,
    given_clusters,
)
from kinspace.numerics import full_precision
from kinspace.slopes import exponentials_, with_slopes

__all__ = ["Magnet", "magnet_loss", "magnet_terms"]


@full_precision
def magnet_loss(
    embeddings: Tensor,
    clusters: Tensor,
    cluster_labels: Tensor,
    *,
    alpha: float = 1.0,
    eps: float = 1e-8,
    sharpness: float = 1.0,
) -> Tensor:
    """Magnet loss (module docstring).

    clusters: for each sample its row in cluster_labels; cluster_labels: the class of each cluster.

    Means 0 and 2, V = 4/3: the inner samples are as far from the other mean as from their own,
    1/(2V), and have term 1; the outer ones are at 9/(2V) from the other and have term 0.

    >>> x = torch.tensor([[-1.0], [1.0], [1.0], [3.0]])
    >>> magnet_loss(x, torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1]), alpha=1.0)
    tensor(0.5000)
    """
    _check_options(alpha, eps, sharpness)
    clusters, cluster_labels = checked_clusters(embeddings, clusters, cluster_labels)
    return _loss(embeddings, clusters, cluster_labels, alpha, eps, sharpness)[0]


@torch.no_grad()
@full_precision
def magnet_terms(
    embeddings: Tensor,
    clusters: Tensor,
    cluster_labels: Tensor,
    *,
    alpha: float = 1.0,
    eps: float = 1e-8,
    sharpness: float = 1.0,
) -> Tensor:
    """The loss of each sample, (batch,): what the neighborhood sampler keeps to choose its seeds.

    Without a gradient; `magnet_loss` has it.

    >>> x = torch.tensor([[-1.0], [1.0], [1.0], [3.0]])
    >>> magnet_terms(x, torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1]), alpha=1.0)
    tensor([0., 1., 1., 0.])
    """
    _check_options(alpha, eps, sharpness)
    clusters, cluster_labels = checked_clusters(embeddings, clusters, cluster_labels)
    return _terms(embeddings, clusters, cluster_labels, alpha, eps, sharpness)[0][:, 0]


@full_precision
def _loss(
    embeddings: Tensor, clusters: Tensor, cluster_labels: Tensor, *options: float
) -> tuple[Tensor, Tensor]:
    """The loss, and V without eps; options: those of `_terms`."""
    terms, variance, slope = _terms(embeddings, clusters, cluster_labels, *options)
    return with_slopes(terms.mean(), (embeddings, slope)), variance


@torch.no_grad()
def _terms(
    embeddings: Tensor,
    clusters: Tensor,
    cluster_labels: Tensor,
    alpha: float,
    eps: float,
    sharpness: float,
) -> tuple[Tensor, Tensor, Callable[[], Tensor]]:
    """The loss of each sample (batch, 1), V without eps, and the gradient of the mean loss."""
    count = len(cluster_labels)
    if by_kernels(embeddings, count):
        return fused_terms(embeddings, clusters, cluster_labels, eps, sharpness, alpha)
    logits, variance, pull = cluster_logits(embeddings, clusters, count, eps, sharpness)
    column = clusters[:, None]
    own = logits.gather(1, column)
    weights = logits.masked_fill_(cluster_labels == cluster_labels[column], -math.inf)
    norms, nearest = exponentials_(weights)
    terms = nearest.sub_(own).add_(alpha).relu_()  # from -inf, and so 0, where no impostor is

    def slope() -> Tensor:
        active = terms.sign().div_(len(terms))
        # a sample's own cluster is no impostor, at 0 so far
        return pull(weights.mul_(active / norms).scatter_(1, column, -active))

    return terms, variance, slope


def _check_options(alpha: float, eps: float, sharpness: float) -> None:
    checks.finite("alpha", alpha)
    checks.finite("eps", eps, at_least=0)
    checks.positive("sharpness", sharpness)


class Magnet(nn.Module):
    """`magnet_loss` as a module, with the running variance that kNC needs (Eq. 6).

    Without `clusters` every class of the batch is one cluster. In training `variance` follows the
    batches' V: their average at first, an exponential one with `momentum` later.

    >>> criterion = Magnet(alpha=1.0)
    >>> x = torch.tensor([[-1.0], [1.0], [1.0], [3.0]])
    >>> criterion(x, torch.tensor([4, 4, 9, 9])), criterion.variance
    (tensor(0.5000), tensor(1.3333))
    """

    variance: Tensor
    batches: Tensor

    def __init__(
        self,
        *,
        alpha: float = 1.0,
        eps: float = 1e-8,
        sharpness: float = 1.0,
        momentum: float = 0.99,
    ) -> None:
        super().__init__()
        _check_options(alpha, eps, sharpness)
        self.alpha, self.eps, self.sharpness = alpha, eps, sharpness
        self.momentum = checks.finite("momentum", momentum, at_least=0)
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
        clusters, cluster_labels = given_clusters(embeddings, labels, clusters, cluster_labels)
        options = self.alpha, self.eps, self.sharpness
        loss, variance = _loss(embeddings, clusters, cluster_labels, *options)
        if self.training:
            self.batches += 1
            # each batch has a share of one over this; torch.compile of 2.11 makes nothing of lerp_
            followed = self.batches.clamp(max=1 / (1 - self.momentum))
            change = variance.to(self.variance.dtype) - self.variance
            self.variance.addcdiv_(change, followed)
        return loss

    def terms(self, embeddings: Tensor, clusters: Tensor, cluster_labels: Tensor) -> Tensor:
        """`magnet_terms` with the options of the module."""
        options = {"alpha": self.alpha, "eps": self.eps, "sharpness": self.sharpness}
        return magnet_terms(embeddings, clusters, cluster_labels, **options)

    def extra_repr(self) -> str:
        return (
            f"alpha={self.alpha}, eps={self.eps}, sharpness={self.sharpness}, "
            f"momentum={self.momentum}"
        )
