"""A share of all pairs: the farthest same pairs and the nearest different ones.

Yuan et al., Hard-aware deeply cascaded embedding, ICCV 2017.
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

__all__ = ["hardest_pairs"]


@torch.no_grad()
@takes_labels
@full_precision
def hardest_pairs(
    embeddings: Tensor,
    labels: Labels,
    *,
    share: float = 0.5,
    reference: Tensor | None = None,
    reference_labels: Labels | None = None,
    includes_batch: bool = False,
    **labeled: Unpack[Labeled],
) -> Tensor:
    """The hardest share of the same pairs, then of the different ones, (P, 2), hardest first.

    Numbers of pairs are rounded up.

    >>> x, labels = torch.tensor([[0.0], [1.0], [3.0]]), torch.tensor([0, 0, 1])
    >>> hardest_pairs(x, labels)
    tensor([[0, 1],
            [1, 2],
            [2, 1]])
    """
    reference, index = compared(embeddings, labels, reference, reference_labels, includes_batch)
    checks.positive("share", share)
    if share > 1:
        raise ValueError(f"share: expected a number from 0 to 1, got {share!r}")
    distances = squared_distances(embeddings, reference)  # (batch, batch)
    same = index.same
    if index.excludes_itself:
        same.diagonal().fill_(False)
    found = []
    for pairs, descending in ((same.nonzero(), True), (index.different.nonzero(), False)):
        apart = distances[pairs[:, 0], pairs[:, 1]]
        order = apart.argsort(descending=descending, stable=True)
        found.append(pairs[order[: math.ceil(share * len(pairs))]])
    return torch.cat(found)
