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

import math
from typing import Any

import torch
from torch import Tensor, nn

from kinspace import checks
from kinspace.numerics import full_precision, log1p_sum_exp
from kinspace.pairs import class_table, next_same

__all__ = ["NPair", "anchored_softmax", "n_pair_loss"]


@full_precision
def n_pair_loss(embeddings: Tensor, labels: Tensor, *, norm_weight: float = 0.0) -> Tensor:
    """N-pair loss (module docstring).

    Two classes of two: each positive logit is 1, each negative 0, so the value is log(1 + 2/e).

    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> n_pair_loss(x, torch.tensor([0, 0, 1, 1]))
    tensor(0.5514)
    """
    labels = checks.with_labels(embeddings, labels, read=False)
    checks.finite("norm_weight", norm_weight, at_least=0)
    index, positive = class_table(labels)
    partner, has_positive = next_same(index, positive)
    terms = anchored_softmax(None, embeddings, partner, index)
    loss = (terms * has_positive).mean()
    return loss + squared_norms(embeddings, norm_weight) if norm_weight else loss


def anchored_softmax(
    anchors: Tensor | None, embeddings: Tensor, positive: Tensor, own: Tensor
) -> Tensor:
    """log(1 + sum_j exp(a_i . x_j - positive_i)) for each anchor i, without j in row i of `own`.

    anchors: None for the embeddings themselves. positive: the positive logits, or the index of
    the sample x_p that makes each, a_i . x_p.
    """
    return _AnchoredSoftmax.apply(anchors, embeddings, positive, own)  # type: ignore[no-any-return,no-untyped-call]


class _AnchoredSoftmax(torch.autograd.Function):
    """Keeps one table, the exponentials, where logits and their log-sum-exp would keep more."""

    @staticmethod
    def forward(
        ctx: Any, anchors: Tensor | None, embeddings: Tensor, positive: Tensor, own: Tensor
    ) -> Tensor:
        logits = _logits(anchors, embeddings, positive).scatter_(1, own, -math.inf)
        top = logits.amax(1, keepdim=True).clamp_(min=0)
        exponentials = logits.sub_(top).exp_()
        # 1 + sum in units of exp(top), less 1: exact for the smallest sums, where top is 0
        excess = exponentials.sum(1, keepdim=True) + torch.expm1(-top)
        ctx.save_for_backward(anchors, embeddings, positive, own, exponentials, excess)
        return (torch.log1p(excess) + top)[:, 0]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        anchors, embeddings, positive, own, exponentials, excess = ctx.saved_tensors
        if torch.is_grad_enabled():  # for a second derivative: all of it again, on the graph
            logits = _logits(anchors, embeddings, positive).scatter(1, own, -math.inf)
            weights = torch.exp(logits - log1p_sum_exp(logits)[:, None]) * grad[:, None]
        else:
            weights = exponentials * (grad[:, None] / (1 + excess))
        total = weights.sum(1, keepdim=True)
        to_positive = -total[:, 0] if positive.is_floating_point() else None
        if to_positive is None:  # the positive is in `own`, at 0
            put = weights.scatter if torch.is_grad_enabled() else weights.scatter_
            weights = put(1, positive[:, None], -total)
        to_anchors = weights @ embeddings
        if anchors is None:
            return None, torch.addmm(to_anchors, weights.T, embeddings), to_positive, None
        return to_anchors, weights.T @ anchors, to_positive, None


def _logits(anchors: Tensor | None, embeddings: Tensor, positive: Tensor) -> Tensor:
    """a_i . x_j less the positive logit, (batch, batch)."""
    anchors = embeddings if anchors is None else anchors
    if positive.is_floating_point():  # as the start of the matrix product: no table of its own
        return torch.addmm(-positive[:, None], anchors, embeddings.T)
    logits = anchors @ embeddings.T
    own = logits.gather(1, positive[:, None])
    return logits - own if torch.is_grad_enabled() else logits.sub_(own)


def squared_norms(embeddings: Tensor, weight: float) -> Tensor:
    """weight/2 times the mean squared length of the embeddings."""
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
