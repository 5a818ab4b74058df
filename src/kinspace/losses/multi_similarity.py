"""Multi-similarity loss: pairs weighted by their own and by their neighbors' similarity.

    L = mean_i [ 1/alpha log(1 + sum_{p in P_i} exp(-alpha (s_ip - base)))
               + 1/beta  log(1 + sum_{n in N_i} exp( beta  (s_in - base))) ]

s is the cosine, or with another `distance` -D. P_i and N_i are the positives and negatives that the
miner keeps (`kinspace.miners.multi_similarity`); `mining_margin=None` keeps all. An anchor with one
of the two empty has term 0 and still counts in the mean.

Wang et al., Multi-similarity loss with general pair weighting, CVPR 2019, Eq. 15.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.distances import DISTANCES, similarity_table
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.references import chosen, related
from kinspace._core.samples import Anchors, Chosen, Labels, takes_samples
from kinspace._core.tensor_ops import REDUCTIONS, log1p_sum_exp, reduce
from kinspace.miners.multi_similarity import informative_pairs

__all__ = ["MultiSimilarity", "multi_similarity_loss"]


@takes_samples
@takes_options(
    alpha=checks.positive,
    beta=checks.positive,
    base=checks.number,
    mining_margin=checks.or_none(checks.number),
    distance=checks.one_of(DISTANCES),
    reduction=checks.one_of(REDUCTIONS),
)
def multi_similarity_loss(  # noqa: PLR0913 (an option each)
    embeddings: Tensor,
    labels: Labels,
    *,
    alpha: float = 2.0,
    beta: float = 50.0,
    base: float = 0.5,
    mining_margin: float | None = 0.1,
    distance: str = "cosine",
    reduction: str = "mean",
    pairs: Tensor | None = None,
    triplets: Tensor | None = None,
    reference: Tensor | None = None,
    reference_labels: Labels | None = None,
    includes_batch: bool = False,
    **samples: Unpack[Anchors],
) -> Tensor:
    """Multi-similarity loss (module docstring).

    Same pairs have cosine 1 and different ones 0, base 0, nothing mined away:
    1/2 log(1 + e^-2) + log(1 + 2).

    >>> import torch
    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> labels = torch.tensor([0, 0, 1, 1])
    >>> multi_similarity_loss(x, labels, beta=1.0, base=0.0, mining_margin=None)
    tensor(1.1621)
    """
    reference, index = related(embeddings, labels, reference, reference_labels, includes_batch)
    index = chosen(pairs, triplets, index)
    similarity = similarity_table(embeddings, reference, distance=distance)  # (batch, batch)
    positives, negatives = informative_pairs(similarity.detach(), index, mining_margin)
    near = similarity.gather(1, index.positives[0])  # (batch, largest class)
    pull = log1p_sum_exp(-alpha * (near - base), positives) / alpha
    push = log1p_sum_exp(beta * (similarity - base), negatives) / beta
    either_empty = ~(positives.any(1) & negatives.any(1))
    return reduce((pull + push).masked_fill(either_empty, 0.0), reduction)


class MultiSimilarity(nn.Module):
    """`multi_similarity_loss` as a module.

    >>> MultiSimilarity()
    MultiSimilarity(alpha=2.0, beta=50.0, base=0.5, mining_margin=0.1, distance='cosine',
                    reduction='mean')
    """

    __call__: Callable[..., Tensor]
    mining_margin: float | None
    extra_repr = options_repr

    def __init__(
        self,
        *,
        alpha: float = 2.0,
        beta: float = 50.0,
        base: float = 0.5,
        mining_margin: float | None = 0.1,
        distance: str = "cosine",
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        keep_options(
            self, multi_similarity_loss, alpha=alpha, beta=beta, base=base,
            mining_margin=mining_margin, distance=distance, reduction=reduction,
        )  # fmt: skip

    def forward(self, embeddings: Tensor, labels: Labels, **inputs: Unpack[Chosen]) -> Tensor:
        return multi_similarity_loss(embeddings, labels, **kept_options(self), **inputs)
