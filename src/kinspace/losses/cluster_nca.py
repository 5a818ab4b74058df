"""Cluster NCA: the log probability that a sample's soft nearest cluster is of its class.

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

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional

from kinspace._core import checks
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.tensor_ops import REDUCTIONS, full_precision, log_sum_exp, reduce
from kinspace.losses.clusters import checked_clusters, given_clusters, scaled_distances

__all__ = ["ClusterNCA", "cluster_nca_loss"]


@full_precision
@takes_options(eps=checks.at_least(0), reduction=checks.one_of(REDUCTIONS))
def cluster_nca_loss(
    embeddings: Tensor,
    clusters: Tensor,
    cluster_labels: Tensor,
    *,
    eps: float = 1e-8,
    reduction: str = "mean",
) -> Tensor:
    """Cluster NCA loss (module docstring).

    clusters: for each sample its row in cluster_labels; cluster_labels: the class of each cluster.

    Means 0 and 2, V = 4/3: the inner samples are as far from the other mean as from their own, and
    have term log 2; the outer ones are nearer their own by 8/(2V) and have term log(1 + e^-3).

    >>> import torch
    >>> x = torch.tensor([[-1.0], [1.0], [1.0], [3.0]])
    >>> cluster_nca_loss(x, torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1]))
    tensor(0.3709)
    """
    clusters, cluster_labels = checked_clusters(embeddings, clusters, cluster_labels)
    distances = scaled_distances(embeddings, clusters, len(cluster_labels), eps=eps)
    same = cluster_labels == cluster_labels[clusters][:, None]  # (batch, clusters)
    # -log(same / (same + others)) is a softplus of the log odds of the others
    odds = log_sum_exp(-distances, ~same) - log_sum_exp(-distances, same)
    return reduce(-functional.logsigmoid(-odds), reduction)


class ClusterNCA(nn.Module):
    """`cluster_nca_loss` as a module. Without `clusters` every class of the batch is one cluster.

    >>> import torch
    >>> x = torch.tensor([[-1.0], [1.0], [1.0], [3.0]])
    >>> ClusterNCA()(x, torch.tensor([4, 4, 9, 9]))
    tensor(0.3709)
    """

    __call__: Callable[..., Tensor]
    takes = "clusters"
    extra_repr = options_repr

    def __init__(self, *, eps: float = 1e-8, reduction: str = "mean") -> None:
        super().__init__()
        keep_options(self, cluster_nca_loss, eps=eps, reduction=reduction)

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        clusters: Tensor | None = None,
        cluster_labels: Tensor | None = None,
    ) -> Tensor:
        given = given_clusters(embeddings, labels, clusters, cluster_labels)
        return cluster_nca_loss(embeddings, *given, **kept_options(self))
