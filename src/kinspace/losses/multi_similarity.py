"""Multi-similarity loss: pairs weighted by their own and by their neighbors' similarity.

    L = mean_i [ 1/alpha log(1 + sum_{p in P_i} exp(-alpha (s_ip - base)))
               + 1/beta  log(1 + sum_{n in N_i} exp( beta  (s_in - base))) ]

s is the cosine. P_i and N_i are the positives and negatives that the miner keeps
(`kinspace.miners.multi_similarity`); `mining_margin=None` keeps all. An anchor with one of the two
empty has term 0 and still counts in the mean.

Wang et al., Multi-similarity loss with general pair weighting, CVPR 2019, Eq. 15.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from kinspace import checks
from kinspace.miners.multi_similarity import mined
from kinspace.numerics import full_precision
from kinspace.pairs import class_table
from kinspace.slopes import exponentials_, unit_with_pull, with_slopes

__all__ = ["MultiSimilarity", "multi_similarity_loss"]


@full_precision
def multi_similarity_loss(
    embeddings: Tensor,
    labels: Tensor,
    *,
    alpha: float = 2.0,
    beta: float = 50.0,
    base: float = 0.5,
    mining_margin: float | None = 0.1,
) -> Tensor:
    """Multi-similarity loss (module docstring).

    Same pairs have cosine 1 and different ones 0, base 0, nothing mined away:
    1/2 log(1 + e^-2) + log(1 + 2).

    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> labels = torch.tensor([0, 0, 1, 1])
    >>> multi_similarity_loss(x, labels, beta=1.0, base=0.0, mining_margin=None)
    tensor(1.1621)
    """
    labels = checks.with_labels(embeddings, labels, read=False)
    _check_options(alpha, beta, base, mining_margin)
    value, slope = _value_and_slope(embeddings, labels, (alpha, beta, base), mining_margin)
    return with_slopes(value, (embeddings, slope))


@torch.no_grad()
def _value_and_slope(
    embeddings: Tensor,
    labels: Tensor,
    weighting: tuple[float, float, float],
    mining_margin: float | None,
) -> tuple[Tensor, Callable[[], Tensor]]:
    alpha, beta, base = weighting
    x, pull_back = unit_with_pull(embeddings)
    index, positive = class_table(labels)
    pulls, pushes, both = mined(x @ x.T, index, positive, mining_margin)
    pull_sums, pull = exponentials_(pulls.sub_(base).mul_(-alpha), plus_one=True)
    push_sums, push = exponentials_(pushes.sub_(base).mul_(beta), plus_one=True)

    def slope() -> Tensor:
        pushes.mul_(both / push_sums.mul_(len(x)))
        pushes.scatter_add_(1, index, pulls.mul_(both / pull_sums.mul_(-len(x))))
        return pull_back((pushes + pushes.T) @ x)

    return pull.div_(alpha).add_(push, alpha=1 / beta).mul_(both).mean(), slope


def _check_options(alpha: float, beta: float, base: float, mining_margin: float | None) -> None:
    checks.positive("alpha", alpha)
    checks.positive("beta", beta)
    checks.finite("base", base)
    if mining_margin is not None:
        checks.finite("mining_margin", mining_margin)


class MultiSimilarity(nn.Module):
    """`multi_similarity_loss` as a module.

    >>> MultiSimilarity()
    MultiSimilarity(alpha=2.0, beta=50.0, base=0.5, mining_margin=0.1)
    """

    def __init__(
        self,
        *,
        alpha: float = 2.0,
        beta: float = 50.0,
        base: float = 0.5,
        mining_margin: float | None = 0.1,
    ) -> None:
        super().__init__()
        _check_options(alpha, beta, base, mining_margin)
        self.alpha = alpha
        self.beta = beta
        self.base = base
        self.mining_margin = mining_margin

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return multi_similarity_loss(
            embeddings,
            labels,
            alpha=self.alpha,
            beta=self.beta,
            base=self.base,
            mining_margin=self.mining_margin,
        )

    def extra_repr(self) -> str:
        return (
            f"alpha={self.alpha}, beta={self.beta}, base={self.base}, "
            f"mining_margin={self.mining_margin}"
        )
