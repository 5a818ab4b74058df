"""The k-th largest of many values."""

from __future__ import annotations

import torch
from torch import Tensor

from kinspace._core.tracing import is_traced

__all__ = ["kth_largest"]


@torch.no_grad()
def kth_largest(values: Tensor, k: Tensor) -> Tensor:
    """The k-th largest of the values (n,), the smallest where k is above n; k counts from 1.

    >>> kth_largest(torch.tensor([3.0, 1.0, 4.0, 2.0]), torch.tensor(2))
    tensor(3.)
    """
    if values.device.type == "cpu" and not (is_traced(values) or is_traced(k)):
        return values.kthvalue(max(len(values) + 1 - int(k), 1)).values  # an eighth of the time
    ordered = values.sort(descending=True).values
    return ordered.gather(0, (k - 1).clamp(max=len(values) - 1)[None])[0]
