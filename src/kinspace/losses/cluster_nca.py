"""Cluster NCA: the log chance that a sample's soft nearest cluster is of its class.

    L = -mean_n log( sum_{k: class_k = class_n} e_nk / sum_k e_nk ),
    e_nk = exp(-||r_n - mu_k||^2/(2V)),   V = sum_n ||r_n - mu_{a(n)}||^2 / (N - 1) + eps

mu_k is the mean of the batch's samples of cluster k and a(n) the cluster of sample n; the gradient
passes through mu and V. A sample with no cluster of another class in the batch has term 0. Clusters
without a sample in the batch are left out. It is for comparison with Magnet, which has the same mu
and V, and the same batches.

Rippel et al., Metric learning with adaptive density discrimination, ICLR 2016, sec. 3.1: "the
cluster-based analogue of NCA", which generalized less well, for it vanishes only at extreme
margins. The paper prints no formula; this is its Eq. 8 with the clusters of Eq. 5. V enters once
and eps keeps a batch of V = 0 finite, as in `kinspace.losses.magnet`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

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

__all__ = ["ClusterNCA", "cluster_nca_loss", "cluster_nca_terms"]


@full_precision
def cluster_nca_loss(
    embeddings: Tensor, clusters: Tensor, cluster_labels: Tensor, *, eps: float = 1e-8
) -> Tensor:
    """Cluster NCA loss (module docstring).

    clusters: for each sample its row in cluster_labels; cluster_labels: the class of each cluster.

    Means 0 and 2, V = 4/3: the inner samples are as far from the other mean as from their own, and
    have term log 2; the outer ones are nearer their own by 8/(2V) and have term log(1 + e^-3).

    >>> x = torch.tensor([[-1.0], [1.0], [1.0], [3.0]])
    >>> cluster_nca_loss(x, torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1]))
    tensor(0.3709)
    """
    checks.finite("eps", eps, at_least=0)
    clusters, cluster_labels = checked_clusters(embeddings, clusters, cluster_labels)
    return _loss(embeddings, clusters, cluster_labels, eps)


@torch.no_grad()
@full_precision
def cluster_nca_terms(
    embeddings: Tensor, clusters: Tensor, cluster_labels: Tensor, *, eps: float = 1e-8
) -> Tensor:
    """The loss of each sample, (batch,), without a gradient; see `magnet_terms`.

    >>> x = torch.tensor([[-1.0], [1.0], [1.0], [3.0]])
    >>> cluster_nca_terms(x, torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1]))
    tensor([0.0486, 0.6931, 0.6931, 0.0486])
    """
    checks.finite("eps", eps, at_least=0)
    clusters, cluster_labels = checked_clusters(embeddings, clusters, cluster_labels)
    return _terms(embeddings, clusters, cluster_labels, eps)[0][:, 0]


@full_precision
def _loss(embeddings: Tensor, clusters: Tensor, cluster_labels: Tensor, eps: float) -> Tensor:
    terms, slope = _terms(embeddings, clusters, cluster_labels, eps)
    return with_slopes(terms.mean(), (embeddings, slope))


@torch.no_grad()
def _terms(
    embeddings: Tensor, clusters: Tensor, cluster_labels: Tensor, eps: float
) -> tuple[Tensor, Callable[[], Tensor]]:
    """The loss of each sample (batch, 1), and the gradient of the mean loss."""
    count = len(cluster_labels)
    if by_kernels(embeddings, count):
        made = fused_terms(embeddings, clusters, cluster_labels, eps)
        return made[0], made[2]
    logits, _, pull = cluster_logits(embeddings, clusters, count, eps)
    same = cluster_labels == cluster_labels[clusters][:, None]  # (batch, clusters)
    mates = logits.masked_fill(~same, -math.inf)
    others = logits.masked_fill_(same, -math.inf)
    mate_norms, near = exponentials_(mates)
    other_norms, far = exponentials_(others)
    odds = far.sub_(near)  # their log; -inf where there are no others

    def slope() -> Tensor:
        missed = odds.sigmoid().div_(len(odds))
        others.mul_(missed / other_norms)
        return pull(others.addcmul_(mates, missed / mate_norms, value=-1))

    return functional.logsigmoid(-odds).neg_(), slope


class ClusterNCA(nn.Module):
    """`cluster_nca_loss` as a module. Without `clusters` every class of the batch is one cluster.

    >>> x = torch.tensor([[-1.0], [1.0], [1.0], [3.0]])
    >>> ClusterNCA()(x, torch.tensor([4, 4, 9, 9]))
    tensor(0.3709)
    """

    def __init__(self, *, eps: float = 1e-8) -> None:
        super().__init__()
        self.eps = checks.finite("eps", eps, at_least=0)

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        clusters: Tensor | None = None,
        cluster_labels: Tensor | None = None,
    ) -> Tensor:
        clusters, cluster_labels = given_clusters(embeddings, labels, clusters, cluster_labels)
        return _loss(embeddings, clusters, cluster_labels, self.eps)

    def terms(self, embeddings: Tensor, clusters: Tensor, cluster_labels: Tensor) -> Tensor:
        """`cluster_nca_terms` with the options of the module."""
        return cluster_nca_terms(embeddings, clusters, cluster_labels, eps=self.eps)

    def extra_repr(self) -> str:
        return f"eps={self.eps}"
