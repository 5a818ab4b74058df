"""Proxy-anchor loss: each proxy pulls its samples and pushes all others, the hardest most.

    L = 1/|P+| sum_{p in P+} log(1 + sum_{x of p's class} exp(-a (s(x, p) - m)))
      + 1/|P|  sum_{p in P}  log(1 + sum_{x of other classes} exp(a (s(x, p) + m)))

s is the cosine, P all proxies, P+ those with a sample in the batch. A sample may be of several
classes: labels are then a matrix of 0 and 1, (batch, classes).

Kim et al., Proxy anchor loss for deep metric learning, CVPR 2020, Eq. 4. (Eq. 1 of the skewed-mean
paper prints the second sum over the wrong samples and the margins outside the scale.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.references import own_classes
from kinspace._core.samples import Samples, takes_samples
from kinspace._core.tensor_ops import log1p_sum_exp
from kinspace._core.vectors import unit
from kinspace.losses.proxies import new_proxies

__all__ = ["ProxyAnchor", "proxy_anchor_loss"]


@takes_samples
@takes_options(alpha=checks.positive, margin=checks.number)
def proxy_anchor_loss(
    embeddings: Tensor,
    labels: Tensor,
    proxies: Tensor,
    *,
    alpha: float = 32.0,
    margin: float = 0.1,
    **samples: Unpack[Samples],
) -> Tensor:
    """Proxy-anchor loss (module docstring).

    Own cosines 1, others 0, alpha 1, margin 0: log(1 + 1/e) + log(1 + e^0).

    >>> import torch
    >>> proxy_anchor_loss(torch.eye(2), torch.tensor([0, 1]), torch.eye(2), alpha=1.0, margin=0.0)
    tensor(1.0064)
    """
    proxies = checks.matching_rows("proxies", proxies, embeddings)
    similarity = alpha * (unit(proxies) @ unit(embeddings).T)  # a s, (classes, batch)
    own = own_classes(embeddings, labels, len(proxies)).T  # (classes, batch)
    pull = log1p_sum_exp(alpha * margin - similarity, own)  # (classes,), 0 without a sample
    push = log1p_sum_exp(alpha * margin + similarity, ~own)
    return pull.sum() / own.any(1).sum() + push.mean()


class ProxyAnchor(nn.Module):
    """`proxy_anchor_loss` with its proxies. Give them to the optimizer too, at 100 times the rate.

    >>> criterion = ProxyAnchor(num_classes=3, dim=2)
    >>> [tuple(p.shape) for p in criterion.parameters()]
    [(3, 2)]
    """

    __call__: Callable[..., Tensor]
    extra_repr = options_repr

    def __init__(
        self, num_classes: int, dim: int, *, alpha: float = 32.0, margin: float = 0.1
    ) -> None:
        super().__init__()
        keep_options(self, proxy_anchor_loss, alpha=alpha, margin=margin)
        self.proxies = new_proxies(num_classes, dim)

    def forward(self, embeddings: Tensor, labels: Tensor, **samples: Unpack[Samples]) -> Tensor:
        return proxy_anchor_loss(embeddings, labels, self.proxies, **kept_options(self), **samples)
