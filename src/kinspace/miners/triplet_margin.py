"""All triplets of a kind: how far the negative is beyond the positive, against a margin.

    violation = D_an - D_ap

- "all": every triplet with violation <= margin, those whose hinge is above 0;
- "semi_hard": 0 < violation <= margin, the negative farther than the positive, and not enough;
- "hard": violation <= 0, the negative nearer than the positive;
- "easy": violation > margin, those that are satisfied.

D is the plain distance. `semi_hard` chooses one negative for each positive pair; this takes all.
Schroff et al., FaceNet, CVPR 2015, section 3.2.
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

__all__ = ["triplet_margin"]

KINDS = ("all", "semi_hard", "hard", "easy")


@torch.no_grad()
@takes_labels
@full_precision
def triplet_margin(
    embeddings: Tensor,
    labels: Labels,
    *,
    margin: float = 0.2,
    kind: str = "semi_hard",
    reference: Tensor | None = None,
    reference_labels: Labels | None = None,
    includes_batch: bool = False,
    **labeled: Unpack[Labeled],
) -> Tensor:
    """All triplets (anchor, positive, negative) of a kind (module docstring), (T, 3).

    >>> x, labels = torch.tensor([[0.0], [1.0], [1.1], [1.2]]), torch.tensor([0, 0, 1, 1])
    >>> triplet_margin(x, labels)
    tensor([[3, 2, 1],
            [0, 1, 2]])
    """
    reference, index = compared(embeddings, labels, reference, reference_labels, includes_batch)
    checks.number("margin", margin)
    checks.choice("kind", kind, KINDS)
    distances = euclidean_distances(embeddings, reference)  # (batch, batch)
    members, positive = index.positives  # (batch, largest class)
    different, found = index.different, []
    for place in range(members.shape[1]):  # a table of pairs at a time, none of triplets
        near = distances.gather(1, members[:, place, None])
        apart = distances - near  # (batch, batch)
        chosen = {
            "all": apart <= margin,
            "semi_hard": (apart > 0) & (apart <= margin),
            "hard": apart <= 0,
            "easy": apart > margin,
        }[kind]
        anchor, negative = (chosen & different & positive[:, place, None]).nonzero().unbind(1)
        found.append(torch.stack([anchor, members[anchor, place], negative], 1))
    return torch.cat(found) if found else torch.empty(0, 3, dtype=torch.long)
