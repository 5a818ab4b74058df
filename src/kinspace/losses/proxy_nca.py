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
from typing import Unpack

from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.samples import Samples, takes_samples
from kinspace._core.tensor_ops import (
    REDUCTIONS,
    log_sum_exp,
    reduce,
    zero_with_grad,
)
from kinspace._core.vectors import norms, unit
from kinspace.losses.proxies import new_proxies

__all__ = ["ProxyNCA", "proxy_nca_loss"]


@takes_samples
@takes_options(scale=checks.positive, reduction=checks.one_of(REDUCTIONS))
def proxy_nca_loss(
    embeddings: Tensor,
    labels: Tensor,
    proxies: Tensor,
    *,
    scale: float = 1.0,
    positive_in_denominator: bool = False,
    reduction: str = "mean",
    **samples: Unpack[Samples],
) -> Tensor:
    """Proxy-NCA loss (module docstring).

    The own proxy is at squared distance 0, the other at 2: -log(e^0 / e^-2).

    >>> import torch
    >>> proxy_nca_loss(torch.eye(2), torch.tensor([0, 1]), torch.eye(2))
    tensor(-2.)
    """
    proxies = checks.matching_rows("proxies", proxies, embeddings)
    labels = checks.labels(embeddings, labels, len(proxies))
    if len(proxies) == 1:
        return reduce(0 * embeddings.detach()[:, 0], reduction) + zero_with_grad(
            embeddings, proxies
        )
    x, p = unit(embeddings), unit(proxies)
    # d = |x|^2 + |p|^2 - 2 x.p; |x|^2 is the same for all proxies and cancels
    logits = scale * (2 * x @ p.T - norms(p).T)  # (batch, classes); |p| = |p|^2 is 1, or 0
    own = logits.gather(1, labels[:, None])
    if not positive_in_denominator:
        logits = logits.scatter(1, labels[:, None], -math.inf)
    return reduce(log_sum_exp(logits) - own[:, 0], reduction)


class ProxyNCA(nn.Module):
    """`proxy_nca_loss` with its proxies. Give them to the optimizer too, at a higher rate.

    >>> criterion = ProxyNCA(num_classes=3, dim=2)
    >>> [tuple(p.shape) for p in criterion.parameters()]
    [(3, 2)]
    """

    __call__: Callable[..., Tensor]
    extra_repr = options_repr

    def __init__(
        self,
        num_classes: int,
        dim: int,
        *,
        scale: float = 1.0,
        positive_in_denominator: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        keep_options(
            self,
            proxy_nca_loss,
            scale=scale,
            positive_in_denominator=positive_in_denominator,
            reduction=reduction,
        )
        self.proxies = new_proxies(num_classes, dim)

    def forward(self, embeddings: Tensor, labels: Tensor, **samples: Unpack[Samples]) -> Tensor:
        return proxy_nca_loss(embeddings, labels, self.proxies, **kept_options(self), **samples)
