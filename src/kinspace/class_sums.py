"""Sums of a batch by class."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from kinspace import cuda_kernels

__all__ = ["class_sums"]

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
    graph = embeddings.requires_grad and torch.is_grad_enabled()
    few = 0 < len(embeddings) * count <= LARGE
    if cuda_kernels.takes(embeddings) and few and not graph and classes.dtype == torch.int64:
        return _fused_sums(embeddings.detach().contiguous(), classes.contiguous(), count)
    sums = embeddings.new_zeros(count, embeddings.shape[1]).index_add_(0, classes, embeddings)
    ones = embeddings.new_ones(len(embeddings))
    return sums, ones.new_zeros(count).index_add_(0, classes, ones)


def _fused_sums(embeddings: Tensor, classes: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """`class_sums` by one kernel."""
    sums, counts = embeddings.new_empty(count, embeddings.shape[1]), embeddings.new_empty(count)
    tables = embeddings, classes, sums, counts
    kernel, grid = (SOURCE, "sums_of_classes"), (count, THREADS)
    cuda_kernels.run(kernel, embeddings, grid, *tables, *embeddings.shape)
    return sums, counts
