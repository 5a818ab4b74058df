"""Batch-hard mining: for each anchor its farthest positive and its nearest negative.

Hermans et al., In defense of the triplet loss for person re-identification, 2017.
"""

from __future__ import annotations

import math
from typing import Unpack

import torch
from torch import Tensor

from kinspace._core.class_index import ClassIndex
from kinspace._core.references import compared
from kinspace._core.samples import Labeled, Labels, takes_labels
from kinspace._core.tensor_ops import full_precision
from kinspace._core.vectors import squared_distances

__all__ = ["batch_hard", "hardest"]


@torch.no_grad()
@takes_labels
@full_precision
def batch_hard(
    embeddings: Tensor,
    labels: Labels,
    *,
    reference: Tensor | None = None,
    reference_labels: Labels | None = None,
    includes_batch: bool = False,
    **labeled: Unpack[Labeled],
) -> Tensor:
    """The hardest triplet (anchor, positive, negative) of each anchor that has one, (T, 3).

    >>> batch_hard(torch.tensor([[0.0], [1.0], [3.0], [9.0]]), torch.tensor([0, 0, 0, 1]))
    tensor([[0, 2, 3],
            [1, 2, 3],
            [2, 0, 3]])
    """
    reference, index = compared(embeddings, labels, reference, reference_labels, includes_batch)
    positive, negative, both = hardest(squared_distances(embeddings, reference), index)
    anchors = torch.arange(len(positive), device=positive.device)
    return torch.stack([anchors, positive, negative], dim=1)[both]


@torch.no_grad()
def hardest(distances: Tensor, index: ClassIndex) -> tuple[Tensor, Tensor, Tensor]:
    """Index of each row's farthest positive and nearest negative, and whether it has both."""
    members, positive = index.positives
    place = distances.gather(1, members).masked_fill(~positive, -1.0).argmax(1, keepdim=True)
    nearest = distances.masked_fill(index.same, math.inf).min(1)
    both = positive.any(1) & (nearest.values != math.inf)
    return members.gather(1, place)[:, 0], nearest.indices, both
