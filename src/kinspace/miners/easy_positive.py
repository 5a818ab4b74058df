"""Easy positives: for each anchor its nearest positive, and a hard or a semi-hard negative.

Pulling an anchor to the one positive that is near it already leaves a class its modes, where the
farthest positive would draw all of them to one place.

Xuan et al., Improved embeddings with easy positive triplet mining, WACV 2020.
"""

from __future__ import annotations

import math
from typing import Unpack

import torch
from torch import Tensor

from kinspace._core import checks
from kinspace._core.references import compared
from kinspace._core.samples import Labeled, Labels, takes_labels
from kinspace._core.tensor_ops import full_precision
from kinspace._core.vectors import squared_distances

__all__ = ["easy_positive"]

NEGATIVES = ("hard", "semi_hard")


@torch.no_grad()
@takes_labels
@full_precision
def easy_positive(
    embeddings: Tensor,
    labels: Labels,
    *,
    negative: str = "semi_hard",
    reference: Tensor | None = None,
    reference_labels: Labels | None = None,
    includes_batch: bool = False,
    **labeled: Unpack[Labeled],
) -> Tensor:
    """The triplet (anchor, nearest positive, negative) of each anchor that has one, (T, 3).

    negative: "hard", the nearest one, or "semi_hard", the nearest one beyond the positive; an
    anchor that has no such negative is left out.

    >>> x, labels = torch.tensor([[0.0], [1.0], [0.5], [3.0]]), torch.tensor([0, 0, 1, 2])
    >>> easy_positive(x, labels)
    tensor([[0, 1, 3],
            [1, 0, 3]])
    """
    reference, index = compared(embeddings, labels, reference, reference_labels, includes_batch)
    checks.choice("negative", negative, NEGATIVES)
    distances = squared_distances(embeddings, reference)  # (batch, batch)
    members, positive = index.positives
    near = distances.gather(1, members).masked_fill(~positive, math.inf).min(1)
    apart = distances.masked_fill(index.same, math.inf)
    if negative == "semi_hard":
        apart = apart.masked_fill(distances <= near.values[:, None], math.inf)
    nearest = apart.min(1)
    used = positive.any(1) & (nearest.values != math.inf)
    anchors = torch.arange(len(members), device=members.device)
    chosen = members.gather(1, near.indices[:, None])[:, 0]
    return torch.stack([anchors, chosen, nearest.indices], dim=1)[used]
