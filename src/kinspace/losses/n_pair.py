"""N-pair loss: every sample against all of other classes at once.

    L = mean_i log(1 + sum_{j: y_j != y_i} exp(x_i . x_j - x_i . p_i)) + w/(2N) sum_i ||x_i||^2

p_i is another sample of i's class: the next one of its class in batch order (cyclic). The
embeddings are not normalized. A sample alone in its class has no p_i: its term is 0 and it still
counts in N.

Sohn, Improved deep metric learning with multi-class N-pair loss objective, NIPS 2016; DML-DA
paper Eq. 4 (which prints a sum). Eq. 1 of the ALMN paper calls p_i the anchor and x_i the
positive; over a batch that is the same loss with "previous" in place of "next".
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kinspace import checks
from kinspace.numerics import full_precision, log1p_sum_exp
from kinspace.pairs import different_pairs, next_same

__all__ = ["NPair", "anchored_softmax", "n_pair_loss"]


@full_precision
def n_pair_loss(embeddings: Tensor, labels: Tensor, *, norm_weight: float = 0.0) -> Tensor:
    """N-pair loss (module docstring).

    Two classes of two: each positive logit is 1, each negative 0, so the value is log(1 + 2/e).

    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> n_pair_loss(x, torch.tensor([0, 0, 1, 1]))
    tensor(0.5514)
    """
    labels = checks.with_labels(embeddings, labels)
    checks.finite("norm_weight", norm_weight, at_least=0)
    index, has_positive = next_same(labels)
    positive = (embeddings * embeddings.index_select(0, index)).sum(1)
    compared = different_pairs(labels) & has_positive[:, None]
    terms = anchored_softmax(embeddings, embeddings, positive, compared)
    return terms.mean() + squared_norms(embeddings, norm_weight)


def anchored_softmax(
    anchors: Tensor, embeddings: Tensor, positive: Tensor, negatives: Tensor
) -> Tensor:
    """log(1 + sum_{j in negatives_i} exp(a_i . x_j - positive_i)) for each anchor i."""
    # the positive logit enters as the start of the matrix product: no table of its own
    logits = torch.addmm(-positive[:, None], anchors, embeddings.T)  # (batch, batch)
    return log1p_sum_exp(logits, negatives)


def squared_norms(embeddings: Tensor, weight: float) -> Tensor:
    """weight/2 times the mean squared length of the embeddings."""
    if weight == 0:
        return embeddings.new_zeros(())
    return embeddings.square().sum() * (weight / (2 * len(embeddings)))


class NPair(nn.Module):
    """`n_pair_loss` as a module.

    >>> NPair(norm_weight=5e-4)
    NPair(norm_weight=0.0005)
    """

    def __init__(self, *, norm_weight: float = 0.0) -> None:
        super().__init__()
        self.norm_weight = checks.finite("norm_weight", norm_weight, at_least=0)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return n_pair_loss(embeddings, labels, norm_weight=self.norm_weight)

    def extra_repr(self) -> str:
        return f"norm_weight={self.norm_weight}"
