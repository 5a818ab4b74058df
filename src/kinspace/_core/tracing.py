"""Whether values of a tensor can be looked at, or only its shape."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["is_traced"]


def is_traced(tensor: Tensor) -> bool:
    """Inside torch.compile and torch.func.vmap no shape and no branch may depend on values.

    >>> is_traced(torch.ones(2))
    False
    """
    return torch.compiler.is_compiling() or _is_batched(tensor)


def _is_batched(tensor: Tensor) -> bool:
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(tensor):
        if functorch.is_batchedtensor(tensor):
            return True
        tensor = functorch.get_unwrapped(tensor)
    return False
