"""One triplet a class, the hardest in it: its farthest positive pair, and the nearest negative.

The pair is that of an anchor of the batch and a positive that are farthest apart in the class; the
negative is the sample of another class that is nearest to the anchor. `batch_hard` has such a
triplet for each anchor; here a large class counts as much as a small one.
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
from kinspace.miners.batch_hard import hardest

__all__ = ["hardest_of_class"]


@torch.no_grad()
@takes_labels
@full_precision
def hardest_of_class(
    embeddings: Tensor,
    labels: Labels,
    *,
    reference: Tensor | None = None,
    reference_labels: Labels | None = None,
    includes_batch: bool = False,
    **labeled: Unpack[Labeled],
) -> Tensor:
    """The hardest triplet (anchor, positive, negative) of each class that has one, (T, 3).

    The first anchor on ties; in the order of the labels.

    >>> x, labels = torch.tensor([[0.0], [1.0], [3.0], [4.0], [9.0]]), torch.tensor([7, 7, 7, 2, 2])
    >>> hardest_of_class(x, labels)
    tensor([[3, 4, 2],
            [0, 2, 3]])
    """
    reference, index = compared(embeddings, labels, reference, reference_labels, includes_batch)
    distances = squared_distances(embeddings, reference)  # (batch, batch)
    positive, negative, both = hardest(distances, index)
    apart = distances.gather(1, positive[:, None])[:, 0].masked_fill(~both, -math.inf)
    order = apart.argsort(descending=True, stable=True)
    order = order[index.labels[order].argsort(stable=True)]  # class by class, the farthest first
    ordered = index.labels[order]
    first = torch.ones_like(both)
    first[1:] = ordered[1:] != ordered[:-1]
    anchors = order[first & both[order]]
    return torch.stack([anchors, positive[anchors], negative[anchors]], dim=1)
