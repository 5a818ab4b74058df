"""Triton, where it is: the compiler of our GPU kernels comes with PyTorch for CUDA on Linux.

Builds of PyTorch for the CPU, macOS and Windows come without it; those before 2.11 have an older
one, with which the kernels are not tried. There `jit` leaves a function as it is, `available_on`
is false, and nothing calls it.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import Tensor

__all__ = ["INTERPRETED", "LIMIT", "available_on", "jit", "power_of_2", "takes_map", "tl"]

OLDEST = (3, 6)  # tried; torch 2.11 has it

try:
    import triton  # type: ignore[import-not-found,import-untyped,unused-ignore]
    from triton import language as tl

    if tuple(int(number) for number in triton.__version__.split(".")[:2]) < OLDEST:
        triton = tl = None
except ImportError:
    triton = tl = None

jit: Any = triton.jit if triton is not None else lambda function: function


INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"  # kernels run on the CPU, for tests
LIMIT = 2**31 - 2**22  # values: kernels count in 32 bits, and past the end by a tile a program


def available_on(x: Tensor) -> bool:
    """Whether kernels run where this tensor is."""
    return triton is not None and ((x.is_cuda and torch.version.cuda is not None) or INTERPRETED)


def takes_map(x: Tensor) -> bool:
    """Whether kernels on maps in channels-last take this one (batch, channels, height, width)."""
    return (
        available_on(x)
        and x.dtype in (torch.float32, torch.bfloat16, torch.float16)
        and 0 < x.numel() < LIMIT
        and x.is_contiguous(memory_format=torch.channels_last)
    )


def power_of_2(at_least: int) -> int:
    """The sizes that a tile may have.

    >>> [power_of_2(size) for size in (1, 4, 5)]
    [1, 4, 8]
    """
    return 1 << (at_least - 1).bit_length()
