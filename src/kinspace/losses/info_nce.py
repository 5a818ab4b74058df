"""InfoNCE: each query finds its own key among the keys of all queries.

    L = mean_i -log( exp(s_ii / t) / sum_j exp(s_ij / t) )

s_ij is the cosine of query i and key j, t the temperature; row i of the keys is the positive of row
i of the queries. `symmetric` takes the mean with the same loss of keys among queries: the loss of
CLIP. With t = 0.05 it is the multiple negatives ranking loss of sentence-transformers; `negatives`
are further keys, which stand in the sum of each query.

van den Oord et al., Representation learning with contrastive predictive coding, 2018, Eq. 4;
Radford et al., Learning transferable visual models from natural language supervision, ICML 2021.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from kinspace._core import checks
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.tensor_ops import REDUCTIONS, full_precision
from kinspace._core.vectors import cosines

__all__ = ["InfoNCE", "info_nce_loss"]


@full_precision
@takes_options(temperature=checks.positive, reduction=checks.one_of(REDUCTIONS))
def info_nce_loss(
    queries: Tensor,
    keys: Tensor,
    *,
    negatives: Tensor | None = None,
    temperature: float = 0.07,
    symmetric: bool = False,
    reduction: str = "mean",
) -> Tensor:
    """InfoNCE loss (module docstring).

    Each query has cosine 1 with its key and 0 with the other: log(1 + 1/e).

    >>> info_nce_loss(torch.eye(2), 3 * torch.eye(2), temperature=1.0)
    tensor(0.3133)
    """
    keys = checks.paired_rows("keys", keys, "queries", queries, same_columns=True)
    logits = cosines(queries, keys) / temperature  # (batch, batch)
    own = torch.arange(len(logits), device=logits.device)
    all_keys = logits
    if negatives is not None:
        negatives = checks.matching_rows("negatives", negatives, keys)
        all_keys = torch.cat([logits, cosines(queries, negatives) / temperature], 1)
    loss = functional.cross_entropy(all_keys, own, reduction=reduction)
    if not symmetric:
        return loss
    return (loss + functional.cross_entropy(logits.T, own, reduction=reduction)) / 2


class InfoNCE(nn.Module):
    """`info_nce_loss` as a module, called on queries and keys.

    >>> InfoNCE()
    InfoNCE(temperature=0.07, symmetric=False, reduction='mean')
    """

    __call__: Callable[..., Tensor]
    extra_repr = options_repr

    def __init__(
        self, *, temperature: float = 0.07, symmetric: bool = False, reduction: str = "mean"
    ) -> None:
        super().__init__()
        keep_options(
            self, info_nce_loss, temperature=temperature, symmetric=symmetric, reduction=reduction
        )

    def forward(self, queries: Tensor, keys: Tensor, *, negatives: Tensor | None = None) -> Tensor:
        return info_nce_loss(queries, keys, negatives=negatives, **kept_options(self))
