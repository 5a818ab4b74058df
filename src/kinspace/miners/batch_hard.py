"""Batch-hard mining: for each anchor its farthest positive and its nearest negative.

Hermans et al., In defense of the triplet loss for person re-identification, 2017.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kinspace import checks
from kinspace.distances import squared_distances
from kinspace.numerics import full_precision
from kinspace.pairs import different_pairs, same_pairs

__all__ = ["batch_hard", "hardest"]


@torch.no_grad()
@full_precision
def batch_hard(embeddings: Tensor, labels: Tensor) -> Tensor:
    """The hardest triplet (anchor, positive, negative) of each anchor that has one, (T, 3).

    >>> batch_hard(torch.tensor([[0.0], [1.0], [3.0], [9.0]]), torch.tensor([0, 0, 0, 1]))
    tensor([[0, 2, 3],
            [1, 2, 3],
            [2, 0, 3]])
    """
    labels = checks.with_labels(embeddings, labels)
    positive, negative, both = hardest(squared_distances(embeddings), labels)
    anchors = torch.arange(len(labels), device=labels.device)
    return torch.stack([anchors, positive, negative], dim=1)[both]


def hardest(distances: Tensor, labels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Index of each row's farthest positive and nearest negative, and whether it has both."""
    positive = torch.where(same_pairs(labels), distances, -1).max(1)
    negative = torch.where(different_pairs(labels), distances, math.inf).min(1)
    both = (positive.values >= 0) & (negative.values < math.inf)
    return positive.indices, negative.indices, both
