"""The inputs of the measures: an EmbeddingTable, NumPy arrays or tensors, validated once."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kinspace._core import checks
from kinspace.embeddings import EmbeddingTable

__all__ = ["Labels", "Vectors", "class_numbers", "labels_of", "vectors_of", "with_labels"]

Vectors = EmbeddingTable | Tensor | NDArray[Any]
Labels = Tensor | NDArray[Any] | None


def vectors_of(
    value: Vectors, *, device: str | torch.device | None = None, name: str = "vectors"
) -> Tensor:
    """A finite float32 or float64 matrix on the device, by default where it is.

    >>> vectors_of(np.array([[1, 2]]))
    tensor([[1., 2.]])
    """
    if isinstance(value, EmbeddingTable):
        value = value.vectors
    if not isinstance(value, Tensor):
        array = np.ascontiguousarray(value)
        if array.dtype.kind not in "fiub":
            raise ValueError(f"{name}: expected numbers, got {array.dtype}")
        value = torch.from_numpy(array if array.flags.writeable else array.copy())
    if value.is_complex():
        raise ValueError(f"{name}: expected real numbers, got {value.dtype}")
    tensor = value.detach()
    if tensor.dtype != torch.float64:
        tensor = tensor.float()
    checks.vectors(name, tensor)
    tensor = tensor.to(device or tensor.device)
    low, high = tensor.aminmax()
    if not bool(torch.isfinite(low) & torch.isfinite(high)):
        bad = (~tensor.isfinite().all(1)).nonzero()[:, 0]
        raise ValueError(
            f"{name}: expected finite numbers, got NaN or infinity in {len(bad)} of {len(tensor)} "
            f"rows, the first is row {int(bad[0])}; remove those rows or embed them again"
        )
    return tensor


def labels_of(value: Vectors, labels: Labels, *, name: str = "labels") -> NDArray[Any]:
    """The labels as an array, those of the table where none are given; one for each vector."""
    if labels is None and isinstance(value, EmbeddingTable):
        labels = value.labels
    if labels is None:
        raise ValueError(f"{name}: expected one for each vector, got None")
    array = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if array.shape != (len(value),):
        raise ValueError(
            f"{name}: expected shape ({len(value)},), one for each vector, got {array.shape}"
        )
    if array.dtype.kind not in "iuUS":
        raise ValueError(f"{name}: expected integers or strings, got {array.dtype}")
    return array


def class_numbers(*labels: NDArray[Any]) -> list[Tensor]:
    """Each array of labels as numbers 0, 1, ... that are the same for the same label.

    >>> class_numbers(np.array(["b", "a"]), np.array(["a", "c"]))
    [tensor([1, 0]), tensor([0, 2])]
    """
    kinds = {array.dtype.kind in "iu" for array in labels}
    if len(kinds) > 1:
        raise ValueError(
            "labels, gallery_labels: expected both as integers or both as strings, got one of each"
        )
    numbers = np.unique(np.concatenate(labels), return_inverse=True)[1]
    bounds = np.cumsum([len(array) for array in labels])[:-1]
    return [torch.from_numpy(part.astype(np.int64)) for part in np.split(numbers, bounds)]


def with_labels(
    vectors: Vectors, labels: Labels, *, device: str | torch.device | None = None
) -> tuple[Tensor, Tensor]:
    """The vectors, and their labels as class numbers 0, 1, ..., on the device."""
    tensor = vectors_of(vectors, device=device)
    return tensor, class_numbers(labels_of(vectors, labels))[0].to(tensor.device)
