"""Semi-hard mining: for each positive pair the nearest negative that is farther than the positive.

Where no negative is farther, the farthest one is taken. Schroff et al., FaceNet, CVPR 2015.
"""

from __future__ import annotations

import math
from typing import Unpack

import torch
from torch import Tensor

from kinspace._core.references import compared
from kinspace._core.samples import Labeled, Labels, takes_labels
from kinspace._core.tensor_ops import full_precision
from kinspace._core.vectors import squared_distances

__all__ = ["semi_hard", "semi_hard_negatives"]


@torch.no_grad()
@takes_labels
@full_precision
def semi_hard(
    embeddings: Tensor,
    labels: Labels,
    *,
    reference: Tensor | None = None,
    reference_labels: Labels | None = None,
    includes_batch: bool = False,
    **labeled: Unpack[Labeled],
) -> Tensor:
    """A triplet (anchor, positive, negative) for each ordered positive pair, (T, 3).

    >>> semi_hard(torch.tensor([[0.0], [1.0], [0.5], [3.0]]), torch.tensor([0, 0, 1, 2]))
    tensor([[0, 1, 3],
            [1, 0, 3]])
    """
    reference, index = compared(embeddings, labels, reference, reference_labels, includes_batch)
    members, positive = index.positives
    squares = squared_distances(embeddings, reference)
    negative, has_negative = semi_hard_negatives(squares, members)
    anchors = torch.arange(len(squares), device=squares.device)[:, None].expand_as(members)
    used = positive & has_negative[:, None]
    return torch.stack([anchors, members, negative], dim=2)[used]


@torch.no_grad()
def semi_hard_negatives(distances: Tensor, members: Tensor) -> tuple[Tensor, Tensor]:
    """For each sample of the class (batch, P), as a positive, its negative; which rows have any."""
    farthest = distances.scatter(1, members, -math.inf).max(1)
    ordered, order = distances.scatter(1, members, math.inf).sort(stable=True, dim=1)
    # the first distance beyond the positive: a negative's, or the infinity of a non-negative
    place = torch.searchsorted(ordered, distances.gather(1, members), right=True)
    place = place.clamp(max=distances.shape[1] - 1)  # of a distance that is not finite
    beyond = ordered.gather(1, place) < math.inf
    chosen = torch.where(beyond, order.gather(1, place), farthest.indices[:, None])
    return chosen, farthest.values != -math.inf
