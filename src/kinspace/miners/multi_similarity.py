"""The pairs that multi-similarity loss keeps: those that are wrong, or nearly so.

A negative is kept if it is more similar than the least similar positive less the margin, a positive
if it is less similar than the most similar negative plus the margin.

Wang et al., Multi-similarity loss with general pair weighting, CVPR 2019, Eq. 11-12.
"""

from __future__ import annotations

import math
from typing import Unpack

import torch
from torch import Tensor

from kinspace._core import checks
from kinspace._core.class_index import ClassIndex
from kinspace._core.references import compared
from kinspace._core.samples import Labeled, Labels, takes_labels
from kinspace._core.tensor_ops import full_precision
from kinspace._core.vectors import cosines

__all__ = ["informative_pairs", "multi_similarity"]


@torch.no_grad()
@takes_labels
@full_precision
def multi_similarity(
    embeddings: Tensor,
    labels: Labels,
    *,
    margin: float | None = 0.1,
    reference: Tensor | None = None,
    reference_labels: Labels | None = None,
    includes_batch: bool = False,
    **labeled: Unpack[Labeled],
) -> Tensor:
    """The pairs (P, 2) to keep, the same ones first. margin None keeps all.

    The similarity is the cosine.

    >>> x = torch.tensor([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8]])
    >>> multi_similarity(x, torch.tensor([0, 0, 1]))
    tensor([[1, 0],
            [1, 2]])
    """
    reference, index = compared(embeddings, labels, reference, reference_labels, includes_batch)
    if margin is not None:
        checks.number("margin", margin)
    similarities = cosines(embeddings, reference)
    pulled, pushed = informative_pairs(similarities, index, margin)
    members, _ = index.positives
    anchors = torch.arange(len(members), device=members.device)[:, None].expand_as(members)
    same = torch.stack([anchors, members], 2)[pulled]
    return torch.cat([same, pushed.nonzero()])


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
