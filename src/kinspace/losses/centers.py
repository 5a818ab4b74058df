"""Class centers that follow the embeddings: the state of ALMN, its ablation and center loss.

    c_z <- c_z - rate * sum_{i: y_i = z} (c_z - x_i) / (1 + n_z)

n_z counts the samples of class z in the batch. ALMN paper Eq. 2, after Wen et al., A discriminative
feature learning approach for deep face recognition, ECCV 2016. A class seen for the first time
starts at its batch mean; the papers do not say, and a start at 0 would pull the first steps there.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kinspace import checks
from kinspace.numerics import full_precision

__all__ = ["register_centers", "started_centers", "update_centers"]


@torch.no_grad()
@full_precision
def update_centers(
    centers: Tensor, embeddings: Tensor, labels: Tensor, *, rate: float = 0.5
) -> Tensor:
    """The centers after one batch (module docstring); the given ones are left as they are.

    >>> update_centers(torch.zeros(2, 1), torch.tensor([[3.0]]), torch.tensor([1]), rate=1.0)
    tensor([[0.0000],
            [1.5000]])
    """
    checks.finite("rate", rate)
    own_dtype = checks.matching_rows("centers", centers, embeddings).dtype
    labels = checks.with_labels(embeddings, labels, len(centers))
    centers = centers.to(own_dtype)
    counts = torch.zeros_like(centers[:, 0]).index_add(0, labels, torch.ones_like(embeddings[:, 0]))
    step = (embeddings - centers.index_select(0, labels)) * (rate / (1 + counts[labels]))[:, None]
    return centers.index_add(0, labels, step)


def register_centers(module: nn.Module, num_classes: int, dim: int) -> None:
    """Give a module the buffers `centers` (classes, dim) and `seen` (classes,)."""
    checks.whole("num_classes", num_classes, at_least=1)
    checks.whole("dim", dim, at_least=1)
    module.register_buffer("centers", torch.zeros(num_classes, dim))
    module.register_buffer("seen", torch.zeros(num_classes, dtype=torch.bool))


@torch.no_grad()
def started_centers(centers: Tensor, seen: Tensor, embeddings: Tensor, labels: Tensor) -> Tensor:
    """The centers, with the batch mean for the classes of the batch not seen so far."""
    checks.matching_rows("centers", centers, embeddings)
    labels = checks.with_labels(embeddings, labels, len(centers))
    embeddings = embeddings.to(centers.dtype)
    sums = torch.zeros_like(centers).index_add(0, labels, embeddings)
    counts = torch.zeros_like(centers[:, :1]).index_add(
        0, labels, torch.ones_like(embeddings[:, :1])
    )
    fresh = (counts > 0) & ~seen[:, None]
    return torch.where(fresh, sums / counts.clamp(min=1), centers)
