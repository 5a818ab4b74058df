"""The pairs that are not yet where they should be: far same pairs and near different ones.

A same pair is kept if it is farther apart than `positive_margin`, a different pair if it is nearer
than `negative_margin`: those whose hinges in contrastive loss are above 0. D is the plain distance.

Hadsell et al., Dimensionality reduction by learning an invariant mapping, CVPR 2006.
"""

from __future__ import annotations

from typing import Unpack

import torch
from torch import Tensor

from kinspace._core import checks
from kinspace._core.references import compared
from kinspace._core.samples import Labeled, Labels, takes_labels
from kinspace._core.tensor_ops import full_precision
from kinspace._core.vectors import euclidean_distances

__all__ = ["pair_margin"]


@torch.no_grad()
@takes_labels
@full_precision
def pair_margin(
    embeddings: Tensor,
    labels: Labels,
    *,
    positive_margin: float = 0.2,
    negative_margin: float = 0.8,
    reference: Tensor | None = None,
    reference_labels: Labels | None = None,
    includes_batch: bool = False,
    **labeled: Unpack[Labeled],
) -> Tensor:
    """The pairs (P, 2) beyond the margins (module docstring), the same ones first.

    >>> x = torch.tensor([[0.0], [0.1], [0.5], [2.0]])
    >>> pair_margin(x, torch.tensor([0, 0, 1, 1]))
    tensor([[2, 3],
            [3, 2],
            [0, 2],
            [1, 2],
            [2, 0],
            [2, 1]])
    """
    reference, index = compared(embeddings, labels, reference, reference_labels, includes_batch)
    checks.number("positive_margin", positive_margin)
    checks.number("negative_margin", negative_margin)
    distances = euclidean_distances(embeddings, reference)  # (batch, batch)
    same = index.same
    if index.excludes_itself:
        same.diagonal().fill_(False)
    pulled = same & (distances > positive_margin)
    pushed = index.different & (distances < negative_margin)
    return torch.cat([pulled.nonzero(), pushed.nonzero()])
