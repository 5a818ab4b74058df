"""Triplets that share no sample: a batch of N makes at most N / 3 of them.

A class's samples are taken in threes, in batch order: anchor, positive, and a sample that is the
negative of another class's anchor. Round by round, first threes before second ones and classes in
the order in which they come up, each anchor takes the third sample of the next three, the last that
of the first. What is left of a class, and a three whose next is of its own class, is not used.

This is how triplets were drawn before all of a batch were used: one at a time, a seed, a positive
and a negative each. With batches of neighborhoods the next class is a near one.
"""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor

from kinspace._core.class_index import ClassIndex
from kinspace._core.references import compared
from kinspace._core.samples import Labeled, Labels, takes_labels

__all__ = ["disjoint", "disjoint_triplets"]


@torch.no_grad()
@takes_labels
def disjoint(
    embeddings: Tensor,
    labels: Labels,
    *,
    reference: Tensor | None = None,
    reference_labels: Labels | None = None,
    includes_batch: bool = False,
    **labeled: Unpack[Labeled],
) -> Tensor:
    """Triplets (anchor, positive, negative) that share no sample, (T, 3). Only the labels count.

    They are drawn from the batch alone: a reference is an error.

    >>> disjoint(torch.zeros(7, 2), torch.tensor([5, 5, 5, 2, 2, 2, 2]))
    tensor([[0, 1, 5],
            [3, 4, 2]])
    """
    _, index = compared(embeddings, labels, reference, reference_labels, includes_batch)
    positive, negative, used = disjoint_triplets(index)
    anchors = torch.arange(len(positive), device=positive.device)
    return torch.stack([anchors, positive, negative], dim=1)[used]


def disjoint_triplets(index: ClassIndex) -> tuple[Tensor, Tensor, Tensor]:
    """For each sample, as an anchor, its positive and negative, and whether it is one."""
    if index.others is not index.labels:
        raise ValueError("reference: expected none, disjoint triplets are of one batch, got one")
    labels, size = index.labels, len(index.labels)
    itself = torch.arange(size, device=labels.device)[:, None]
    members, others = index.positives
    turn = (others & (members < itself)).sum(1)  # of the sample in its class
    anchor = (turn % 3 == 0) & (turn + 2 <= others.sum(1))
    following = members.masked_fill(~others | (members < itself), size - 1).amin(1)  # in the class
    key = turn * size + members.amin(1)  # by round, then by the class's first sample
    queue = key.masked_fill(~anchor, size * size).argsort()  # the anchors, in their order
    three = queue[(queue.argsort() + 1) % anchor.sum().clamp(min=1)]  # after each one's own
    negative = following[following[three]]
    return following, negative, anchor & (labels[negative] != labels)
