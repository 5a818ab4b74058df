"""Proxy-anchor loss: each proxy pulls its samples and pushes all others, the hardest most.

    L = 1/|P+| sum_{p in P+} log(1 + sum_{x of p's class} exp(-a (s(x, p) - m)))
      + 1/|P|  sum_{p in P}  log(1 + sum_{x of other classes} exp(a (s(x, p) + m)))

s is the cosine, P all proxies, P+ those with a sample in the batch.

Kim et al., Proxy anchor loss for deep metric learning, CVPR 2020, Eq. 4. (Eq. 1 of the skewed-mean
paper prints the second sum over the wrong samples and the margins outside the scale.)
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from kinspace import checks
from kinspace.losses.proxies import new_proxies
from kinspace.numerics import full_precision
from kinspace.slopes import exponentials_, two_units_with_pull, with_slopes

__all__ = ["ProxyAnchor", "proxy_anchor_loss"]


@full_precision
def proxy_anchor_loss(
    embeddings: Tensor, labels: Tensor, proxies: Tensor, *, alpha: float = 32.0, margin: float = 0.1
) -> Tensor:
    """Proxy-anchor loss (module docstring).

    Own cosines 1, others 0, alpha 1, margin 0: log(1 + 1/e) + log(1 + e^0).

    >>> proxy_anchor_loss(torch.eye(2), torch.tensor([0, 1]), torch.eye(2), alpha=1.0, margin=0.0)
    tensor(1.0064)
    """
    proxies = checks.matching_rows("proxies", proxies, embeddings)
    labels = checks.with_labels(embeddings, labels, len(proxies))
    checks.positive("alpha", alpha)
    checks.finite("margin", margin)
    rows = torch.cat((proxies, embeddings))
    value, slope = _value_and_slope(rows, labels[None], alpha, margin)
    return with_slopes(value, (rows, slope))


@torch.no_grad()
def _value_and_slope(
    rows: Tensor, labels: Tensor, alpha: float, margin: float
) -> tuple[Tensor, Callable[[], Tensor]]:
    """Of the proxies and, below them, the embeddings; labels (1, batch)."""
    size = labels.shape[1]
    classes = len(rows) - size
    p, x, pull_units = two_units_with_pull(rows, classes)
    start = x.new_full((size,), alpha * margin)
    push = torch.addmm(start, p, x.T, alpha=alpha)  # (classes, batch)
    own = push.gather(0, labels)  # a (s + m), to be -a (s - m)
    pull = torch.full_like(push, -math.inf).scatter_(0, labels, torch.rsub(own, 2 * alpha * margin))
    push.scatter_(0, labels, -math.inf)
    pull_sums, pull_terms = exponentials_(pull, plus_one=True)
    push_sums, push_terms = exponentials_(push, plus_one=True)
    present = x.new_zeros(classes).index_fill_(0, labels[0], 1).sum()
    value = pull_terms.div_(present).add_(push_terms, alpha=1 / classes).sum()

    def slope() -> Tensor:
        by_cosines = push.div_(push_sums.mul_(classes))
        by_cosines.addcdiv_(pull, pull_sums.mul_(present), value=-1)
        return pull_units(by_cosines, alpha)

    return value, slope


class ProxyAnchor(nn.Module):
    """`proxy_anchor_loss` with its proxies. Give them to the optimizer too, at 100 times the rate.

    >>> criterion = ProxyAnchor(num_classes=3, dim=2)
    >>> [tuple(p.shape) for p in criterion.parameters()]
    [(3, 2)]
    """

    def __init__(
        self, num_classes: int, dim: int, *, alpha: float = 32.0, margin: float = 0.1
    ) -> None:
        super().__init__()
        self.alpha = checks.positive("alpha", alpha)
        self.margin = checks.finite("margin", margin)
        self.proxies = new_proxies(num_classes, dim)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return proxy_anchor_loss(
            embeddings, labels, self.proxies, alpha=self.alpha, margin=self.margin
        )

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}, margin={self.margin}"
