"""The pairs that multi-similarity loss keeps: those that are wrong, or nearly so.

A negative is kept if it is more similar than the least similar positive less the margin, a positive
if it is less similar than the most similar negative plus the margin.

Wang et al., Multi-similarity loss with general pair weighting, CVPR 2019, Eq. 11-12.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kinspace import checks
from kinspace.pairs import class_table

__all__ = ["mined", "multi_similarity"]


@torch.no_grad()
def multi_similarity(
    similarities: Tensor, labels: Tensor, *, margin: float | None = 0.1
) -> tuple[Tensor, Tensor, Tensor]:
    """The class of each sample (batch, P), which of it to keep as positives, and which negatives.

    The first two are as `kinspace.pairs.class_table` gives them, the last is a mask (batch,
    batch). margin None keeps all.

    >>> s = torch.tensor([[1.0, 0.9, 0.2], [0.9, 1.0, 0.85], [0.2, 0.85, 1.0]])
    >>> index, pulled, pushed = multi_similarity(s, torch.tensor([0, 0, 1]))
    >>> pulled.any(1), pushed
    (tensor([False,  True, False]), tensor([[False, False, False],
            [False, False,  True],
            [False, False, False]]))
    """
    size = len(labels)
    if similarities.shape != (size, size):
        raise ValueError(
            f"similarities: expected shape {(size, size)}, a row and a column for each label, "
            f"got {tuple(similarities.shape)}"
        )
    if margin is not None:
        checks.finite("margin", margin)
    index, positive = class_table(labels)
    pulled, pushed, _ = mined(similarities, index, positive, margin)
    return index, pulled < math.inf, pushed > -math.inf


@torch.no_grad()
def mined(
    similarities: Tensor, index: Tensor, positive: Tensor, margin: float | None
) -> tuple[Tensor, Tensor, Tensor]:
    """The similarities to pull (batch, class) and to push (batch, batch), and who has both.

    Those not kept are infinite, inf among the first and -inf among the second.
    """
    pulled = similarities.gather(1, index).masked_fill_(~positive, math.inf)
    pushed = similarities.scatter(1, index, -math.inf)
    least, most = pulled.amin(1, keepdim=True), pushed.amax(1, keepdim=True)
    if margin is None:
        return pulled, pushed, least - most < math.inf
    # a row without positives keeps no negative, and the other way round
    pulled.masked_fill_(pulled >= most + margin, math.inf)
    pushed.masked_fill_(pushed <= least - margin, -math.inf)
    return pulled, pushed, least - most < margin
