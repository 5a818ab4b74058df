"""The pairs that multi-similarity loss keeps: those that are wrong, or nearly so.

A negative is kept if it is more similar than the least similar positive less the margin, a positive
if it is less similar than the most similar negative plus the margin.

Wang et al., Multi-similarity loss with general pair weighting, CVPR 2019, Eq. 11-12.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kinspace.pairs import different_pairs, same_pairs

__all__ = ["multi_similarity"]


@torch.no_grad()
def multi_similarity(
    similarities: Tensor, labels: Tensor, *, margin: float | None = 0.1
) -> tuple[Tensor, Tensor]:
    """Masks (batch, batch) of the positives and the negatives to keep; margin None keeps all.

    >>> s = torch.tensor([[1.0, 0.9, 0.2], [0.9, 1.0, 0.85], [0.2, 0.85, 1.0]])
    >>> multi_similarity(s, torch.tensor([0, 0, 1]))[1]
    tensor([[False, False, False],
            [False, False,  True],
            [False, False, False]])
    """
    same, different = same_pairs(labels), different_pairs(labels)
    if margin is None:
        return same, different
    least = torch.where(same, similarities, math.inf).amin(1, keepdim=True)
    most = torch.where(different, similarities, -math.inf).amax(1, keepdim=True)
    # a row without positives has least = inf: it keeps no negative, and the other way round
    return same & (similarities < most + margin), different & (similarities > least - margin)
