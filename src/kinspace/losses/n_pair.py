"""N-pair loss: every sample against all samples of other classes at once.

    L = mean_i log(1 + sum_{j: y_j != y_i} exp(x_i . x_j - x_i . p_i)) + w/(2N) sum_i ||x_i||^2

p_i is another sample of i's class: the next one of its class in batch order (cyclic). The
embeddings are not normalized. A sample alone in its class has no p_i: its term is 0 and it still
counts in N. With anchors="first" there is one pair a class, its first two samples a_c and p_c in
batch order, and the mean is over the classes that have two, as Sohn prints it:

    L = mean_c log(1 + sum_{k != c} exp(a_c . p_k - a_c . p_c)) + w/(2N) sum_i ||x_i||^2

With a reference p_i is in it: the n-th sample of a class has the n-th of that class (cyclic), so
that a second view of the batch, in its order, has the positives.

The logarithm is the cross-entropy of the positive among the positive and the negatives.

Sohn, Improved deep metric learning with multi-class N-pair loss objective, NIPS 2016; DML-DA
paper Eq. 4 (which prints a sum). Eq. 1 of the ALMN paper calls p_i the anchor and x_i the
positive; over a batch that is the same loss with "previous" in place of "next".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional

from kinspace._core import checks
from kinspace._core.class_index import ClassIndex
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.references import compared
from kinspace._core.samples import Anchors, Labels, Reference, takes_samples
from kinspace._core.tensor_ops import REDUCTIONS, reduce

__all__ = ["NPair", "n_pair_loss"]

ANCHORS = ("all", "first")


@takes_samples
@takes_options(
    norm_weight=checks.at_least(0),
    anchors=checks.one_of(ANCHORS),
    reduction=checks.one_of(REDUCTIONS),
)
def n_pair_loss(  # noqa: PLR0913 (an option each)
    embeddings: Tensor,
    labels: Labels,
    *,
    norm_weight: float = 0.0,
    anchors: str = "all",
    reduction: str = "mean",
    reference: Tensor | None = None,
    reference_labels: Labels | None = None,
    includes_batch: bool = False,
    **samples: Unpack[Anchors],
) -> Tensor:
    """N-pair loss (module docstring).

    Two classes of two: each positive logit is 1, each negative 0, so the value is log(1 + 2/e).

    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> n_pair_loss(x, torch.tensor([0, 0, 1, 1]))
    tensor(0.5514)
    >>> n_pair_loss(x, torch.tensor([0, 0, 1, 1]), anchors="first")  # log(1 + 1/e)
    tensor(0.3133)
    """
    reference, index = compared(embeddings, labels, reference, reference_labels, includes_batch)
    if anchors == "all":
        value = reduce(_all_anchors(embeddings, reference, index), reduction)
    else:
        terms, count = _first_anchors(embeddings, reference, index)
        value = reduce(terms, reduction, count)
    if not isinstance(norm_weight, Tensor) and norm_weight == 0:
        return value
    return value + reduce(norm_weight / 2 * embeddings.square().sum(1), reduction)


def _all_anchors(x: Tensor, reference: Tensor | None, index: ClassIndex) -> Tensor:
    """One term a sample."""
    partner, paired = index.following
    logits = x @ (x if reference is None else reference).T  # (batch, batch)
    own, _ = index.positives  # (batch, largest class)
    if reference is None:
        itself = torch.arange(len(x), device=x.device)[:, None]
        others = torch.where(own == partner[:, None], itself, own)  # no negatives, nor the positive
        logits = logits.scatter(1, others, -math.inf)
    else:
        positive = functional.one_hot(partner, len(reference)).bool()
        logits = logits.masked_fill(index.same & ~positive, -math.inf)
    terms = functional.cross_entropy(logits, partner, reduction="none")
    return terms.masked_fill(~paired, 0.0)


def _first_anchors(x: Tensor, reference: Tensor | None, index: ClassIndex) -> tuple[Tensor, Tensor]:
    """The terms of the classes at the places of their anchors, and how many classes have one."""
    if reference is not None:
        raise ValueError("anchors: expected 'all' with a reference, got 'first'")
    first, second, counts = index.first_pairs
    logits = x.index_select(0, first) @ x.index_select(0, second).T  # (classes, classes)
    logits = logits.masked_fill(~counts, torch.finfo(logits.dtype).min)
    own = torch.arange(len(first), device=first.device)
    terms = functional.cross_entropy(logits, own, reduction="none").masked_fill(~counts, 0.0)
    return x.new_zeros(len(x)).index_add(0, first, terms), counts.sum()


class NPair(nn.Module):
    """`n_pair_loss` as a module.

    >>> NPair(norm_weight=5e-4)
    NPair(norm_weight=0.0005, anchors='all', reduction='mean')
    """

    __call__: Callable[..., Tensor]
    extra_repr = options_repr

    def __init__(
        self, *, norm_weight: float = 0.0, anchors: str = "all", reduction: str = "mean"
    ) -> None:
        super().__init__()
        keep_options(
            self, n_pair_loss, norm_weight=norm_weight, anchors=anchors, reduction=reduction
        )

    def forward(self, embeddings: Tensor, labels: Labels, **inputs: Unpack[Reference]) -> Tensor:
        return n_pair_loss(embeddings, labels, **kept_options(self), **inputs)
