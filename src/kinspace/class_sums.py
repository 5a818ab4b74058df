"""Sums and means of a batch by class."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from kinspace import cuda_kernels

__all__ = ["class_means", "class_sums"]

# of the kernel
SOURCE = Path(__file__).with_suffix(".cu")
THREADS = 256
LARGE = 2**25  # samples times classes: every class looks at all labels


def class_sums(embeddings: Tensor, classes: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Sum (count, dim) and number (count,) of the rows of each class.

    >>> class_sums(torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([2, 0, 2]), 3)
    (tensor([[2.],
            [0.],
            [5.]]), tensor([1., 0., 2.]))
    """
    if _fits(embeddings, classes, count):
        return _fused(embeddings, classes, count, means=False)
    sums = embeddings.new_zeros(count, embeddings.shape[1]).index_add_(0, classes, embeddings)
    ones = embeddings.new_ones(len(embeddings))
    return sums, ones.new_zeros(count).index_add_(0, classes, ones)


def class_means(embeddings: Tensor, classes: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Mean (count, dim), 0 over nothing, and number (count,) of the rows of each class.

    >>> class_means(torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([2, 0, 2]), 3)
    (tensor([[2.0000],
            [0.0000],
            [2.5000]]), tensor([1., 0., 2.]))
    """
    if _fits(embeddings, classes, count):
        return _fused(embeddings, classes, count, means=True)
    sums, counts = class_sums(embeddings, classes, count)
    return sums / counts.clamp(min=1)[:, None], counts


def _fits(embeddings: Tensor, classes: Tensor, count: int) -> bool:
    """Whether the kernel takes them."""
    graph = embeddings.requires_grad and torch.is_grad_enabled()
    few = 0 < len(embeddings) * count <= LARGE
    return cuda_kernels.takes(embeddings) and few and not graph and classes.dtype == torch.int64


def _fused(
    embeddings: Tensor, classes: Tensor, count: int, *, means: bool
) -> tuple[Tensor, Tensor]:
    """`class_sums` or `class_means` by one kernel."""
    rows, places = embeddings.detach().contiguous(), classes.contiguous()
    made, counts = rows.new_empty(count, rows.shape[1]), rows.new_empty(count)
    kernel, grid = (SOURCE, "sums_of_classes"), (count, THREADS)
    cuda_kernels.run(kernel, rows, grid, rows, places, made, counts, *rows.shape, int(means))
    return made, counts
