"""Triton, where it is: the compiler of our GPU kernels comes with PyTorch for CUDA on Linux.

Builds of PyTorch for the CPU, macOS and Windows come without it; those before 2.11 have an older
one, which may lack what a kernel uses (the mask of a histogram). There `jit` leaves a function as
it is, `available` is false, and nothing calls it.
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["TOGETHER", "available", "jit", "meet", "power_of_2", "tl"]

# For kernels whose programs wait for each other: all are on the device at once, or none. Without it
# two such kernels, of two processes that share a GPU, may each hold what the other waits for.
TOGETHER: dict[str, Any] = {"launch_cooperative_grid": True}

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


def power_of_2(at_least: int) -> int:
    """The sizes that a tile may have.

    >>> [power_of_2(size) for size in (1, 4, 5)]
    [1, 4, 8]
    """
    return 1 << (at_least - 1).bit_length()


@jit  # type: ignore[untyped-decorator,unused-ignore]  # no hints: Triton would take them for its own
def meet(waiting, times):  # type: ignore[no-untyped-def]
    """Go on when all programs have come here so many times; all must be on the device at once.

    waiting: a whole number in the memory of the GPU, 0 before the launch.
    """
    tl.debug_barrier()
    everyone = times * tl.num_programs(0)
    arrived = tl.atomic_add(waiting, 1, sem="acq_rel") + 1
    while arrived < everyone:
        arrived = tl.atomic_add(waiting, 0, sem="acquire")
    tl.debug_barrier()
