"""Attribute precision: do neighbors share attributes? Rippel et al., Magnet, 2016, sec. 4.2.

For every sample i and attribute t that i has: the share of the n nearest other samples that have t.
The precision for a neighborhood of size n is the mean over all such (i, t); n is limited to the
number of other samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kinspace._core import checks
from kinspace.embeddings import EmbeddingTable
from kinspace.evaluation.similarity import Vectors, nearest_blocks, vectors_of

__all__ = ["attribute_precision", "attribute_precision_each"]

BLOCK = 2**22  # numbers of (samples, neighbors, attributes) computed at a time
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


def attribute_precision(
    vectors: Vectors,
    attributes: Tensor | NDArray[Any] | None = None,
    sizes: Sequence[int] = SIZES,
    *,
    metric: str = "euclidean",
) -> dict[int, float]:
    """The precision for each neighborhood size; NaN if no sample has an attribute.

    attributes: (rows, attributes), where a value above 1/2 means that the sample has it; by default
    those of the table.

    >>> x = torch.tensor([[0.0], [1.0], [3.0]])
    >>> attribute_precision(x, torch.tensor([[1], [0], [1]]), [1, 2])
    {1: 0.0, 2: 0.5}
    """
    shared, having = _shared(vectors, attributes, sizes, metric)
    total = int(having.sum())
    return {
        int(size): float(row.sum()) / total if total else math.nan
        for size, row in zip(sizes, shared, strict=True)
    }


def attribute_precision_each(
    vectors: Vectors,
    attributes: Tensor | NDArray[Any] | None = None,
    sizes: Sequence[int] = SIZES,
    *,
    names: Sequence[str] | None = None,
    metric: str = "euclidean",
) -> dict[str, dict[int, float]]:
    """The precision of each attribute alone, by its name.

    >>> x, a = torch.tensor([[0.0], [1.0], [3.0]]), torch.tensor([[1, 0], [0, 0], [1, 0]])
    >>> attribute_precision_each(x, a, [2], names=("spots", "stripes"))
    {'spots': {2: 0.5}, 'stripes': {2: nan}}
    """
    shared, having = _shared(vectors, attributes, sizes, metric)
    if names is None and isinstance(vectors, EmbeddingTable) and attributes is None:
        names = vectors.attribute_names
    names = [str(i) for i in range(len(having))] if names is None else names
    if len(names) != len(having):
        raise ValueError(f"names: expected {len(having)}, one an attribute, got {len(names)}")
    return {
        name: {
            int(size): float(shared[row, column] / having[column]) if having[column] else math.nan
            for row, size in enumerate(sizes)
        }
        for column, name in enumerate(names)
    }


def _shared(
    vectors: Vectors,
    attributes: Tensor | NDArray[Any] | None,
    sizes: Sequence[int],
    metric: str,
) -> tuple[Tensor, Tensor]:
    """For each size and attribute the sum of shares, and how many samples have the attribute."""
    tensor = vectors_of(vectors)
    if attributes is None and isinstance(vectors, EmbeddingTable):
        attributes = vectors.attributes
    if attributes is None:
        raise ValueError("attributes: expected a row for each vector, got None")
    values = torch.as_tensor(attributes if isinstance(attributes, Tensor) else np.array(attributes))
    if values.ndim != 2 or len(values) != len(tensor):
        raise ValueError(
            f"attributes: expected one row for each of {len(tensor)} vectors, "
            f"got shape {tuple(values.shape)}"
        )
    if len(tensor) < 2:
        raise ValueError("vectors: expected at least two, to be one another's neighbors, got one")
    has = (values > 0.5).to(tensor.device)
    sizes = [checks.integer("sizes", int(size), at_least=1) for size in sizes]
    shared = torch.zeros(len(sizes), has.shape[1], dtype=torch.float64, device=tensor.device)
    begin = 0
    for _, found in nearest_blocks(tensor, max(sizes), metric=metric):
        for index in found.split(max(1, BLOCK // (found.shape[1] * has.shape[1]))):
            own = has[begin : begin + len(index)].double()
            begin += len(index)
            near = has[index].double()  # (rows, neighbors, attributes)
            for row, size in enumerate(sizes):
                shared[row] += (near[:, :size].mean(1) * own).sum(0)
    return shared, has.sum(0)
