"""The pairs that multi-similarity loss keeps: those that are wrong, or nearly so.

A negative is kept if it is more similar than the least similar positive less the margin, a positive
if it is less similar than the most similar negative plus the margin.

Wang et al., Multi-similarity loss with general pair weighting, CVPR 2019, Eq. 11-12.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from kinspace._core import checks
from kinspace._core.class_index import ClassIndex

__all__ = ["informative_pairs", "multi_similarity"]


@torch.no_grad()
def multi_similarity(
    similarities: Tensor, labels: Tensor, *, margin: float | None = 0.1
) -> tuple[Tensor, Tensor, Tensor]:
    """The class of each sample (batch, P), which of it to keep as positives, and which negatives.

    The first two are indices and a mask, the last a mask (batch, batch). margin None keeps all.

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
        checks.number("margin", margin)
    index = ClassIndex(checks.labels(similarities, labels))
    return index.positives[0], *informative_pairs(similarities, index, margin)


@torch.no_grad()
def informative_pairs(
    similarities: Tensor, index: ClassIndex, margin: float | None
) -> tuple[Tensor, Tensor]:
    """Masks of the positives (batch, P), as in `index.positives`, and negatives (batch, batch)."""
    members, positives = index.positives
    if margin is None:
        return positives, index.different
    near = similarities.gather(1, members)
    # a row without positives keeps no negative, and the other way round; NaN is kept
    least = near.masked_fill(~positives, math.inf).amin(1, keepdim=True)
    most = similarities.masked_fill(index.same, -math.inf).amax(1, keepdim=True)
    return positives & ~(near >= most + margin), index.different & ~(similarities <= least - margin)
