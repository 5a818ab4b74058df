"""The triplets whose angle at the negative is too large, as angular loss measures it.

    tan(angle) = ||x_a - x_p|| / (2 ||x_n - (x_a + x_p)/2||)

The angle at the negative in the triangle whose side from anchor to positive is turned until it is
perpendicular to the line from its middle to the negative. Kept are those above `degrees`; the
vectors are scaled to length 1 first.

Wang et al., Deep metric learning with angular loss, ICCV 2017, Eq. 5.
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
from kinspace._core.vectors import norms, squared_distances, unit

__all__ = ["angular"]


@torch.no_grad()
@takes_labels
@full_precision
def angular(
    embeddings: Tensor,
    labels: Labels,
    *,
    degrees: float = 20.0,
    reference: Tensor | None = None,
    reference_labels: Labels | None = None,
    includes_batch: bool = False,
    **labeled: Unpack[Labeled],
) -> Tensor:
    """All triplets (anchor, positive, negative) with a larger angle (module docstring), (T, 3).

    The chord has length sqrt 2; its middle is 1 - sqrt 1/2 from the first negative, sqrt 5/2 from
    the second: angles of 67.5 and 24 degrees.

    >>> x = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 0.0], [-1.0, 0.0, 0.0]])
    >>> angular(x, torch.tensor([0, 0, 1, 2]), degrees=60.0)
    tensor([[1, 0, 2],
            [0, 1, 2]])
    """
    reference, index = compared(embeddings, labels, reference, reference_labels, includes_batch)
    checks.positive("degrees", degrees)
    x = unit(embeddings)
    other = x if reference is None else unit(reference)
    members, positive = index.positives  # (batch, largest class)
    different, found = index.different, []
    limit = math.tan(math.radians(degrees))
    for place in range(members.shape[1]):  # a table of pairs at a time, none of triplets
        near = other[members[:, place]]
        chord = norms(x - near)  # (batch, 1)
        height = squared_distances((x + near) / 2, other).sqrt()  # (batch, batch)
        chosen = chord > 2 * limit * height
        anchor, negative = (chosen & different & positive[:, place, None]).nonzero().unbind(1)
        found.append(torch.stack([anchor, members[anchor, place], negative], 1))
    return torch.cat(found) if found else torch.empty(0, 3, dtype=torch.long)
