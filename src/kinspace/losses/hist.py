"""HIST: classes as distributions, and the batch as a hypergraph whose samples are classified.

    d_ic = sum_k (x_ik - m_ck)^2 / v_ck                            to the distribution of class c
    L_i  = -log softmax_c(-s d_ic)[y_i] + w CE_i

    H_ic = 1 for the own class, exp(-a d_ic) for the others        a class is a hyperedge
    G    = D^-1/2 H E^-1 H' D^-1/2,   D_ii = sum_c H_ic,   E_cc = sum_i H_ic
    CE_i = -log softmax(G (z W_2 + b_2))[y_i],   z = LeakyReLU(BatchNorm(G (x W_1 + b_1)))

m are the means at length 1, v = exp(relu6(log_variances)); x is at length 1 in d and as given in z.
The hyperedges are the classes in the batch. Layers have the bias as their last column; `norm` is
scale and shift of the batch normalization, which always takes mean and variance of the batch: the
network is for training only, and there are no running ones.

Lim et al., Hypergraph-induced semantic tuplet loss for deep metric learning, CVPR 2022; the layers
and their numbers as in the authors' code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional

from kinspace._core import checks
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.samples import Samples, takes_samples
from kinspace._core.tensor_ops import REDUCTIONS, reduce
from kinspace._core.vectors import unit
from kinspace.losses.proxies import new_layer, new_proxies

__all__ = ["HIST", "hist_loss"]

SLOPE = 0.1  # of the LeakyReLU below 0
BATCH_NORM_EPS = 1e-5


@takes_samples
@takes_options(
    scale=checks.positive,
    alpha=checks.positive,
    weight=checks.at_least(0),
    reduction=checks.one_of(REDUCTIONS),
)
def hist_loss(  # noqa: PLR0913 (the parameters of its network)
    embeddings: Tensor,
    labels: Tensor,
    means: Tensor,
    log_variances: Tensor,
    hidden: Tensor,
    norm: Tensor,
    output: Tensor,
    *,
    scale: float = 32.0,
    alpha: float = 0.9,
    weight: float = 1.0,
    reduction: str = "mean",
    **samples: Unpack[Samples],
) -> Tensor:
    """HIST loss (module docstring).

    means, log_variances: (classes, dim). hidden: (units, dim + 1). norm: (2, units). output:
    (classes, units + 1). Layers of zeros say nothing of the class: log 2 besides the distances.

    >>> x, zeros = torch.eye(2), torch.zeros(2, 3)
    >>> labels = torch.tensor([0, 1])
    >>> hist_loss(x, labels, x, 0 * x, zeros, torch.ones(2, 2), zeros, scale=1.0)
    tensor(0.8201)
    """
    means = checks.matching_rows("means", means, embeddings)
    labels = checks.labels(embeddings, labels, len(means))
    units = norm.shape[-1] if isinstance(norm, Tensor) and norm.ndim else 0
    rows, dim = means.shape
    log_variances = checks.layer("log_variances", log_variances, (rows, dim), "the means", means)
    hidden = checks.layer("hidden", hidden, (units, dim + 1), "the embeddings", means)
    norm = checks.layer("norm", norm, (2, units), "the hidden units", means)
    output = checks.layer("output", output, (rows, units + 1), "the hidden units", means)
    distances = _distances(unit(embeddings), unit(means), log_variances)  # (batch, classes)
    near = functional.cross_entropy(-scale * distances, labels, reduction="none")
    spread = _propagation(distances, labels, alpha)  # G, (batch, batch)
    z = spread @ functional.linear(embeddings, hidden[:, :-1], hidden[:, -1])  # (batch, units)
    z = functional.leaky_relu(_batch_normalized(z, norm), SLOPE)
    logits = spread @ functional.linear(z, output[:, :-1], output[:, -1])  # (batch, classes)
    classified = functional.cross_entropy(logits, labels, reduction="none")
    return reduce(near + weight * classified, reduction)


def _distances(x: Tensor, means: Tensor, log_variances: Tensor) -> Tensor:
    """Squared Mahalanobis distances, (batch, classes)."""
    precision = (-functional.relu6(log_variances)).exp()
    weighted = precision * means
    return x.square() @ precision.T - 2 * x @ weighted.T + (weighted * means).sum(1)


def _propagation(distances: Tensor, labels: Tensor, alpha: float) -> Tensor:
    """G. The hyperedge of a class stands once for each of its samples, and counts 1 / as many."""
    same = labels[:, None] == labels  # (batch, batch)
    incidence = (-alpha * distances[:, labels]).exp().masked_fill(same, 1.0)  # H by samples
    counts = same.sum(0)
    degrees = (incidence / counts).sum(1, keepdim=True).sqrt()  # D^1/2
    incidence = incidence / degrees
    return (incidence / (counts * (incidence * degrees).sum(0))) @ incidence.T


def _batch_normalized(z: Tensor, norm: Tensor) -> Tensor:
    centered = z - z.mean(0)
    return centered / (centered.square().mean(0) + BATCH_NORM_EPS).sqrt() * norm[0] + norm[1]


class HIST(nn.Module):
    """`hist_loss` with its distributions and its network. Give them to the optimizer too.

    width: the units of the network's hidden layer.

    >>> [tuple(p.shape) for p in HIST(num_classes=3, dim=2, width=4).parameters()]
    [(3, 2), (3, 2), (4, 3), (2, 4), (3, 5)]
    """

    __call__: Callable[..., Tensor]
    extra_repr = options_repr

    def __init__(
        self,
        num_classes: int,
        dim: int,
        *,
        width: int = 512,
        scale: float = 32.0,
        alpha: float = 0.9,
        weight: float = 1.0,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        width = checks.integer("width", width, at_least=1)
        keep_options(self, hist_loss, scale=scale, alpha=alpha, weight=weight, reduction=reduction)
        self.means, self.log_variances = (new_proxies(num_classes, dim) for _ in range(2))
        self.hidden = new_layer(width, dim)
        self.norm = nn.Parameter(torch.stack([torch.ones(width), torch.zeros(width)]))
        self.output = new_layer(num_classes, width)

    def forward(self, embeddings: Tensor, labels: Tensor, **samples: Unpack[Samples]) -> Tensor:
        classes, network = (self.means, self.log_variances), (self.hidden, self.norm, self.output)
        return hist_loss(embeddings, labels, *classes, *network, **kept_options(self), **samples)
