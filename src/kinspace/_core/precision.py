"""Losses run in float32 or better, whatever the model runs in."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch
from torch import Tensor

__all__ = ["full_precision", "upcast_half"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


def full_precision(function: Callable[P, R]) -> Callable[P, R]:
    """Run a function with autocast off and its float16 and bfloat16 arguments as float32.

    Sums over a batch and exponentials of scaled similarities do not fit the half precisions.
    """

    @functools.wraps(function)
    def in_full_precision(*args: P.args, **kwargs: P.kwargs) -> R:
        upcast: Any = tuple(upcast_half(value) for value in args)
        named: Any = {name: upcast_half(value) for name, value in kwargs.items()}
        first = args[0] if args else None
        device = first.device.type if isinstance(first, Tensor) else "cpu"
        if not torch.is_autocast_enabled(device):
            return function(*upcast, **named)
        with torch.autocast(device_type=device, enabled=False):
            return function(*upcast, **named)

    return in_full_precision


def upcast_half(value: T) -> T | Tensor:
    """Float16 and bfloat16 tensors as float32, anything else as it is.

    >>> upcast_half(torch.ones(1, dtype=torch.bfloat16)).dtype
    torch.float32
    """
    if isinstance(value, Tensor) and value.dtype in (torch.float16, torch.bfloat16):
        return value.float()
    return value
