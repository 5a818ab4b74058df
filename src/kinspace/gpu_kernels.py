"""Triton, where it is: the compiler of our GPU kernels comes with PyTorch for CUDA on Linux.

Builds of PyTorch for the CPU, macOS and Windows come without it; those before 2.11 have an older
one, which may lack what a kernel uses (the mask of a histogram). There `jit` leaves a function as
it is, `available` is false, and nothing calls it.
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["available", "jit", "tl"]

OLDEST = (3, 6)  # tried; torch 2.11 has it

try:
    import triton  # type: ignore[import-not-found,import-untyped,unused-ignore]
    from triton import language as tl

    if tuple(int(number) for number in triton.__version__.split(".")[:2]) < OLDEST:
        triton = tl = None
except ImportError:
    triton = tl = None

jit: Any = triton.jit if triton is not None else lambda function: function


def available() -> bool:
    """Whether kernels can be built; they are only tried on NVIDIA's GPUs."""
    return triton is not None and torch.version.cuda is not None
