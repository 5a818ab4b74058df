"""What a loss may be given. Every error says what came and what was expected."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = [
    "choice",
    "finite",
    "known_on_host",
    "matching_rows",
    "named",
    "not_negative",
    "on_host",
    "one_of_each_class",
    "positive",
    "vectors",
    "whole",
    "with_labels",
]

Value = TypeVar("Value")
_ON_HOST = "_kinspace_on_host"


def vectors(name: str, value: Tensor) -> Tensor:
    """A non-empty floating point matrix, one vector a row.

    >>> vectors("embeddings", torch.zeros(2, 3)).shape
    torch.Size([2, 3])
    >>> vectors("embeddings", torch.zeros(3))
    Traceback (most recent call last):
    ValueError: embeddings: expected a matrix (rows, dim), got shape (3,)
    """
    if not isinstance(value, Tensor):
        raise ValueError(f"{name}: expected a torch.Tensor, got {type(value).__name__}")
    if value.ndim != 2:
        raise ValueError(f"{name}: expected a matrix (rows, dim), got shape {tuple(value.shape)}")
    if not value.is_floating_point():
        raise ValueError(f"{name}: expected floating point numbers, got {value.dtype}")
    if 0 in value.shape:
        raise ValueError(
            f"{name}: expected at least one row and one column, got shape {tuple(value.shape)}"
        )
    return value


def with_labels(
    embeddings: Tensor,
    labels: Tensor,
    num_classes: int | None = None,
    *,
    name: str = "labels",
    read: bool = True,
) -> Tensor:
    """Check the embeddings and their labels; return the labels as int64.

    The values of the labels are read once (`on_host`); not inside torch.compile, nor with
    read=False, for losses that read them anyway (`pairs.class_table`).
    """
    vectors("embeddings", embeddings)
    if not isinstance(labels, Tensor):
        raise ValueError(f"{name}: expected a torch.Tensor, got {type(labels).__name__}")
    if labels.ndim != 1 or len(labels) != len(embeddings):
        raise ValueError(
            f"{name}: expected shape ({len(embeddings)},), one for each row of embeddings, "
            f"got {tuple(labels.shape)}"
        )
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise ValueError(f"{name}: expected integers, got {labels.dtype}")
    if labels.device != embeddings.device:
        raise ValueError(
            f"{name}: expected them on {embeddings.device} like the embeddings, got {labels.device}"
        )
    if read and not torch.compiler.is_compiling():
        values = on_host(labels)
        not_negative(name, int(values.min()))
        if num_classes is not None and (high := int(values.max())) >= num_classes:
            raise ValueError(f"{name}: expected less than {num_classes} (one row each), got {high}")
    return labels.long()


def on_host(labels: Tensor) -> NDArray[np.integer[Any]]:
    """The values of labels, in the host's memory.

    Reading them from a GPU waits for all its work. So a tensor is read once and keeps what was
    read (until it is changed in place); a loader that had them here anyway says so beforehand with
    `known_on_host`, and then nothing waits.

    >>> on_host(torch.tensor([3, 1]))
    array([3, 1])
    """
    if labels.is_cpu:
        return labels.numpy()
    if labels.is_inference():
        return labels.cpu().numpy()
    kept = getattr(labels, _ON_HOST, None)
    if kept is None or kept[0] != labels._version:
        kept = (labels._version, labels.cpu().numpy())
        setattr(labels, _ON_HOST, kept)
    values: NDArray[np.integer[Any]] = kept[1]
    return values


def known_on_host(labels: Tensor, values: Tensor) -> Tensor:
    """The labels, and that their values are those of a tensor on the CPU; see `on_host`.

    >>> known_on_host(torch.tensor([3, 1]), torch.tensor([3, 1]))
    tensor([3, 1])
    """
    if labels.device.type != "cpu" and not labels.is_inference():
        setattr(labels, _ON_HOST, (labels._version, values.numpy()))
    return labels


def not_negative(name: str, smallest: int) -> None:
    """The smallest of some labels is 0 or more."""
    if smallest < 0:
        raise ValueError(f"{name}: expected 0 or more, got {smallest}")


def matching_rows(name: str, value: Tensor, embeddings: Tensor) -> Tensor:
    """A matrix whose rows have the embeddings' dimension (centers, proxies), in their dtype."""
    vectors("embeddings", embeddings)
    vectors(name, value)
    if value.shape[1] != embeddings.shape[1]:
        raise ValueError(
            f"{name}: expected {embeddings.shape[1]} columns like the embeddings, "
            f"got shape {tuple(value.shape)}"
        )
    return value.to(embeddings.dtype)


def one_of_each_class(name: str, value: Tensor, num_classes: int | None = None) -> Tensor:
    """A floating point vector with one entry a class."""
    if not isinstance(value, Tensor) or value.ndim != 1 or not value.is_floating_point():
        came = f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
        raise ValueError(f"{name}: expected a floating point vector, one entry a class, got {came}")
    if num_classes is not None and len(value) != num_classes:
        raise ValueError(f"{name}: expected {num_classes} entries, one a class, got {len(value)}")
    return value


def finite(name: str, value: float, *, at_least: float = -math.inf) -> float:
    """A finite number, not below `at_least`.

    >>> finite("margin", float("nan"))
    Traceback (most recent call last):
    ValueError: margin: expected a finite number, got nan
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{name}: expected a number, got {value!r}")
    if not math.isfinite(value):
        raise ValueError(f"{name}: expected a finite number, got {value!r}")
    if value < at_least:
        raise ValueError(f"{name}: expected at least {at_least:g}, got {value!r}")
    return value


def positive(name: str, value: float) -> float:
    """A finite number above zero."""
    if finite(name, value) <= 0:
        raise ValueError(f"{name}: expected a number above 0, got {value!r}")
    return value


def whole(name: str, value: int, *, at_least: int) -> int:
    """A whole number, not below `at_least`."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name}: expected a whole number, got {value!r}")
    if value < at_least:
        raise ValueError(f"{name}: expected at least {at_least}, got {value!r}")
    return value


def choice(name: str, value: str, allowed: Iterable[str]) -> str:
    """One of the allowed words."""
    allowed = tuple(allowed)
    if value not in allowed:
        words = ", ".join(repr(word) for word in allowed)
        raise ValueError(f"{name}: expected one of {words}, got {value!r}")
    return value


def named(kind: str, name: str, registry: Mapping[str, Value]) -> Value:
    """What a registry has under a name.

    >>> named("loss", "triplets", {"triplet": 1, "nra": 2})
    Traceback (most recent call last):
    ValueError: unknown loss 'triplets'; did you mean 'triplet'? choose from: nra, triplet
    """
    if name in registry:
        return registry[name]
    near = get_close_matches(str(name), registry, n=1)
    advice = f"did you mean {near[0]!r}? " if near else ""
    raise ValueError(f"unknown {kind} {name!r}; {advice}choose from: {', '.join(sorted(registry))}")
