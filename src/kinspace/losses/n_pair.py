"""N-pair loss: every sample against all of other classes at once.

    L = mean_i log(1 + sum_{j: y_j != y_i} exp(x_i . x_j - x_i . p_i)) + w/(2N) sum_i ||x_i||^2

p_i is another sample of i's class: the next one of its class in batch order (cyclic). The
embeddings are not normalized. A sample alone in its class has no p_i: its term is 0 and it still
counts in N. With anchors="first" one pair a class, its first two samples a_c, p_c in batch order:

    L = mean_c log(1 + sum_{k != c} exp(a_c . p_k - a_c . p_c)) + w/(2N) sum_i ||x_i||^2

over the classes that have two, as Sohn prints it.

Sohn, Improved deep metric learning with multi-class N-pair loss objective, NIPS 2016; DML-DA
paper Eq. 4 (which prints a sum). Eq. 1 of the ALMN paper calls p_i the anchor and x_i the
positive; over a batch that is the same loss with "previous" in place of "next".
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

from kinspace import checks
from kinspace.numerics import full_precision
from kinspace.pairs import first_pairs, next_same
from kinspace.slopes import LOG2_E, exponentials_, twice_sums_, with_slopes

__all__ = ["NPair", "center_softmax", "n_pair_loss"]

ANCHORS = ("all", "first")
MODERATE = 6.0  # lengths up to which exp(x_i . x_j) is far from the ends of float32


@full_precision
def n_pair_loss(
    embeddings: Tensor, labels: Tensor, *, norm_weight: float = 0.0, anchors: str = "all"
) -> Tensor:
    """N-pair loss (module docstring).

    Two classes of two: each positive logit is 1, each negative 0, so the value is log(1 + 2/e).

    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> n_pair_loss(x, torch.tensor([0, 0, 1, 1]))
    tensor(0.5514)
    >>> n_pair_loss(x, torch.tensor([0, 0, 1, 1]), anchors="first")  # log(1 + 1/e)
    tensor(0.3133)
    """
    labels = checks.with_labels(embeddings, labels, read=False)
    checks.finite("norm_weight", norm_weight, at_least=0)
    checks.choice("anchors", anchors, ANCHORS)
    make = _value_and_slope if anchors == "all" else _of_first_pairs
    value, slope = make(embeddings, labels)
    if not norm_weight:
        return with_slopes(value, (embeddings, slope))
    x = embeddings.detach()
    value = value + x.square().sum() * (norm_weight / (2 * len(x)))
    return with_slopes(value, (embeddings, lambda: slope().add_(x, alpha=norm_weight / len(x))))


@torch.no_grad()
def _value_and_slope(x: Tensor, labels: Tensor) -> tuple[Tensor, Callable[[], Tensor]]:
    index, partner, paired = next_same(labels)
    partner, paired = partner[:, None], paired[:, None]
    if _moderate(x):
        return _symmetric(x, index, partner, paired)
    logits = x @ x.T
    logits.sub_(logits.gather(1, partner)).scatter_(1, index, -math.inf)
    sums, terms = exponentials_(logits, plus_one=True)

    def slope() -> Tensor:
        weights = logits.mul_(paired / sums.mul_(len(x)))
        # the positive is of the own class, at 0 so far
        weights.scatter_(1, partner, weights.sum(1, keepdim=True).neg_())
        return (weights + weights.T) @ x

    return terms.mul_(paired).mean(), slope


@torch.no_grad()
def _of_first_pairs(x: Tensor, labels: Tensor) -> tuple[Tensor, Callable[[], Tensor]]:
    """With one pair a class."""
    first, second, valid = first_pairs(labels)
    if not len(first):
        return x.new_zeros(()), lambda: torch.zeros_like(x)
    anchors, positives = x.index_select(0, first), x.index_select(0, second)
    logits = anchors @ positives.T  # (classes, classes)
    logits.sub_(logits.diagonal()[:, None].clone()).fill_diagonal_(-math.inf)
    if valid is not None:
        logits.masked_fill_(~(valid[:, None] & valid), -math.inf)
    sums, terms = exponentials_(logits, plus_one=True)
    count = len(first) if valid is None else valid.sum().clamp(min=1)

    def slope() -> Tensor:
        weights = logits.div_(sums.mul_(count))
        weights.diagonal().sub_(weights.sum(1))
        by_anchors, by_positives = weights @ positives, weights.T @ anchors
        return (
            torch.zeros_like(x).index_add_(0, first, by_anchors).index_add_(0, second, by_positives)
        )

    return terms.sum() / count, slope


def _moderate(x: Tensor) -> bool:
    """Whether exponentials of inner products fit as they are; not asked where it has a price."""
    if x.is_cuda or torch.compiler.is_compiling():
        return False
    return float(torch.linalg.vector_norm(x, dim=1).amax()) <= MODERATE


def _symmetric(
    x: Tensor, index: Tensor, partner: Tensor, paired: Tensor
) -> tuple[Tensor, Callable[[], Tensor]]:
    """The same where nothing has to be taken from the exponents: the table is symmetric then.

    The gradient by x_i . x_j is E_ij (a_i + a_j), with no second table for its transpose.
    """
    # exp(x_i . x_j), see `exp_`; with beta 0 the first argument is not read
    table = torch.addmm(x.new_empty(()), x, x.T, beta=0, alpha=LOG2_E).exp2_()
    own = table.gather(1, partner)
    sums = table.scatter_(1, index, 0).sum(1, keepdim=True)

    def slope() -> Tensor:
        shares = paired / own.add_(sums)
        pull = (shares * sums).mul_(-2)
        twice_sums_(table, shares).scatter_add_(1, partner, pull).scatter_add_(0, partner.T, pull.T)
        return torch.addmm(x.new_empty(()), table, x, beta=0, alpha=0.5 / len(x))

    return (sums / own).log1p_().mul_(paired).mean(), slope


@torch.no_grad()
def center_softmax(
    x: Tensor,
    lengths: Tensor,
    own: Tensor,
    logits: Tensor,
    same: Tensor,
    positive: tuple[Tensor, Callable[[], Tensor]],
    norm_weight: float,
) -> tuple[Tensor, Callable[[], Tensor]]:
    """mean_i log(1 + sum_{j: y_j != y_i} exp(x_j . c_i - p_i)) + w/(2N) sum_i ||x_i||^2.

    lengths: those of the x_i; own: the centers c_i; logits: x_j . c_i, used up; positive: the p_i
    and their slope, that of each p_i by x_i. Returns the value and its slope.
    """
    sums, terms = exponentials_(
        logits.sub_(positive[0]).masked_fill_(same, -math.inf), plus_one=True
    )
    size = len(x)

    def slope() -> Tensor:
        weights = logits.div_(sums.mul_(size))
        pull = weights.sum(1, keepdim=True)
        grad = torch.addmm(x, weights.T, own, beta=norm_weight / size)
        return grad.addcmul_(pull, positive[1](), value=-1)

    return terms.addcmul_(lengths, lengths, value=norm_weight / 2).mean(), slope


class NPair(nn.Module):
    """`n_pair_loss` as a module.

    >>> NPair(norm_weight=5e-4)
    NPair(norm_weight=0.0005, anchors='all')
    """

    def __init__(self, *, norm_weight: float = 0.0, anchors: str = "all") -> None:
        super().__init__()
        self.norm_weight = checks.finite("norm_weight", norm_weight, at_least=0)
        self.anchors = checks.choice("anchors", anchors, ANCHORS)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return n_pair_loss(embeddings, labels, norm_weight=self.norm_weight, anchors=self.anchors)

    def extra_repr(self) -> str:
        return f"norm_weight={self.norm_weight}, anchors={self.anchors!r}"
