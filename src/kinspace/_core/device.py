"""The device and the CPUs that a process computes on."""

from __future__ import annotations

import os

import torch

__all__ = ["cpu_count", "pick_device"]


def pick_device(name: str | torch.device | None = None) -> torch.device:
    """The device of a name ("cpu", "cuda", "cuda:1"); None: a GPU if there is one, else the CPU.

    "cuda" is the GPU of this process where torchrun started several.

    >>> pick_device("cpu")
    device(type='cpu')
    """
    name = str(name) if name else ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"device: expected cpu, cuda or cuda:1, got {name!r}") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        there = f"GPUs: {count}" + ("" if count else "; cpu works everywhere")
        raise ValueError(f"device: expected one that is there, got {name!r}; {there}")
    if name == "cuda":
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", torch.cuda.current_device())))
    return device


def cpu_count() -> int:
    """The CPUs this process may use; a container or `taskset` may leave fewer than there are.

    >>> cpu_count() >= 1
    True
    """
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
