"""The pairs that multi-similarity loss keeps: those that are wrong, or nearly so.

A negative is kept if it is more similar than the least similar positive less the margin, a positive
if it is less similar than the most similar negative plus the margin.

Wang et al., Multi-similarity loss with general pair weighting, CVPR 2019, Eq. 11-12.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kinspace.pairs import own_class, positives

__all__ = ["multi_similarity"]


@torch.no_grad()
def multi_similarity(
    similarities: Tensor, labels: Tensor, *, margin: float | None = 0.1
) -> tuple[Tensor, Tensor, Tensor]:
    """The positives (batch, P) of each sample, which of them to keep, and which negatives.

    The first two are as `kinspace.pairs.positives` gives them, the last is a mask (batch, batch).
    margin None keeps all.

    >>> s = torch.tensor([[1.0, 0.9, 0.2], [0.9, 1.0, 0.85], [0.2, 0.85, 1.0]])
    >>> index, pulled, pushed = multi_similarity(s, torch.tensor([0, 0, 1]))
    >>> pulled[:, 0], pushed
    (tensor([False,  True, False]), tensor([[False, False, False],
            [False, False,  True],
            [False, False, False]]))
    """
    index, real = positives(labels)
    own = own_class(index)
    if margin is None:
        return index, real, torch.ones_like(similarities, dtype=torch.bool).scatter_(1, own, False)
    similar = similarities.gather(1, index)
    most = similarities.scatter(1, own, -math.inf).amax(1, keepdim=True)
    # a row without positives keeps no negative, and the other way round
    least = torch.where(real, similar, math.inf).amin(1, keepdim=True)
    pushed = (similarities > least - margin).scatter_(1, own, False)
    return index, real & (similar < most + margin), pushed
