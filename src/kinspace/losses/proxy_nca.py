"""Proxy-NCA: neighborhood components analysis with one learnt proxy a class.

    L = mean_i -log( exp(-s d(x_i, p_{y_i})) / sum_{z != y_i} exp(-s d(x_i, p_z)) )

d is the squared distance of the unit vectors. The positive is not in the denominator, as in the
paper, so the loss may be negative; `positive_in_denominator` puts it there, which makes the loss a
normalized softmax. With one class only there is nothing to compare: 0.

Movshovitz-Attias et al., No fuss distance metric learning using proxies, ICCV 2017, Eq. 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from kinspace import checks
from kinspace.losses.proxies import new_proxies
from kinspace.numerics import full_precision, zero_of
from kinspace.slopes import exponentials_, two_units_with_pull, with_slopes

__all__ = ["ProxyNCA", "proxy_nca_loss"]


@full_precision
def proxy_nca_loss(
    embeddings: Tensor,
    labels: Tensor,
    proxies: Tensor,
    *,
    scale: float = 1.0,
    positive_in_denominator: bool = False,
) -> Tensor:
    """Proxy-NCA loss (module docstring).

    The own proxy is at squared distance 0, the other at 2: -log(e^0 / e^-2).

    >>> proxy_nca_loss(torch.eye(2), torch.tensor([0, 1]), torch.eye(2))
    tensor(-2.)
    """
    proxies = checks.matching_rows("proxies", proxies, embeddings)
    labels = checks.with_labels(embeddings, labels, len(proxies))
    checks.positive("scale", scale)
    if len(proxies) == 1:
        return zero_of(embeddings, proxies)
    rows = torch.cat((embeddings, proxies))
    value, slope = _value_and_slope(rows, labels[:, None], scale, positive_in_denominator)
    return with_slopes(value, (rows, slope))


@torch.no_grad()
def _value_and_slope(
    rows: Tensor, labels: Tensor, scale: float, positive_in_denominator: bool
) -> tuple[Tensor, Callable[[], Tensor]]:
    """Of the embeddings and, below them, the proxies; labels (batch, 1)."""
    size = len(labels)
    x, p, pull_units = two_units_with_pull(rows, size)
    # |x|^2 of the distance is the same for all proxies and cancels; |p|^2 is 1, or 0 for a zero:
    # so it has no gradient, and is |p| as well
    lengths = torch.linalg.vector_norm(p, dim=1)
    logits = torch.addmm(lengths, x, p.T, beta=-scale, alpha=2 * scale)  # (batch, classes)
    own = logits.gather(1, labels)
    if not positive_in_denominator:
        logits.scatter_(1, labels, -math.inf)
    sums, logs = exponentials_(logits)

    def slope() -> Tensor:
        weights = logits.div_(sums).scatter_(1, labels, -1.0, reduce="add")
        return pull_units(weights, 2 * scale / size)

    return logs.sub_(own).mean(), slope


class ProxyNCA(nn.Module):
    """`proxy_nca_loss` with its proxies. Give them to the optimizer too, at a higher rate.

    >>> criterion = ProxyNCA(num_classes=3, dim=2)
    >>> [tuple(p.shape) for p in criterion.parameters()]
    [(3, 2)]
    """

    def __init__(
        self,
        num_classes: int,
        dim: int,
        *,
        scale: float = 1.0,
        positive_in_denominator: bool = False,
    ) -> None:
        super().__init__()
        self.scale = checks.positive("scale", scale)
        self.positive_in_denominator = positive_in_denominator
        self.proxies = new_proxies(num_classes, dim)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return proxy_nca_loss(
            embeddings,
            labels,
            self.proxies,
            scale=self.scale,
            positive_in_denominator=self.positive_in_denominator,
        )

    def extra_repr(self) -> str:
        return f"scale={self.scale}, positive_in_denominator={self.positive_in_denominator}"
