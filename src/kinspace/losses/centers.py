"""Class centers that follow the embeddings: the state of ALMN, its ablation, center loss and NCM.

    c_z <- c_z - rate * sum_{i: y_i = z} (c_z - x_i) / (1 + n_z)

n_z counts the samples of class z in the batch. ALMN paper Eq. 2, after Wen et al., A discriminative
feature learning approach for deep face recognition, ECCV 2016. A class seen for the first time
starts at its batch mean; the papers do not say, and a start at 0 would pull the first steps there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor, nn

from kinspace import checks, cuda_kernels
from kinspace.class_sums import class_sums
from kinspace.numerics import full_precision

__all__ = ["follow", "follow_all", "register_centers", "update_centers"]

# of the kernel
SOURCE = Path(__file__).with_suffix(".cu")
THREADS = 256


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
    centers = checks.matching_rows("centers", centers, embeddings)
    labels = checks.with_labels(embeddings, labels, len(centers))
    sums, counts = class_sums(embeddings, labels, len(centers))
    return _moved(centers, sums, counts[:, None], rate)


def _moved(centers: Tensor, sums: Tensor, counts: Tensor, rate: float) -> Tensor:
    pull = torch.addcmul(sums, counts, centers, value=-1)
    return torch.addcdiv(centers, pull, 1 + counts, value=rate)


class HasCenters(Protocol):
    """A module with class centers: those `register_centers` gave it, and the rate they move at."""

    centers: Tensor
    seen: Tensor
    rate: float
    training: bool


def register_centers(module: nn.Module, num_classes: int, dim: int) -> None:
    """Give a module the buffers `centers` (classes, dim) and `seen` (classes,)."""
    checks.whole("num_classes", num_classes, at_least=1)
    checks.whole("dim", dim, at_least=1)
    module.register_buffer("centers", torch.zeros(num_classes, dim))
    module.register_buffer("seen", torch.zeros(num_classes, dtype=torch.bool))


@torch.no_grad()
def follow(module: HasCenters, embeddings: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The checked labels and, for each sample, the center of its class before this batch.

    Classes not seen so far have their batch mean. In training the module's centers then move.
    """
    labels, centers, _ = follow_all(module, embeddings, labels)
    own = centers.index_select(0, labels)
    return labels, own if embeddings.dtype.itemsize < 4 else own.to(embeddings.dtype)


@torch.no_grad()
def follow_all(
    module: HasCenters, embeddings: Tensor, labels: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """`follow`, with the centers of all classes, and which of them have been seen."""
    centers = module.centers
    checks.matching_rows("centers", centers, embeddings)
    labels = checks.with_labels(embeddings, labels, len(centers))
    if cuda_kernels.takes(centers) and centers.is_contiguous():
        return labels, *_fused(module, embeddings.to(centers.dtype).contiguous(), labels)
    sums, counts = class_sums(embeddings.to(centers.dtype), labels, len(centers))
    counts = counts[:, None]
    present = counts > 0
    known = module.seen | present[:, 0]
    new = present > module.seen[:, None]
    started = torch.where(new, sums / counts.clamp(min=1), centers)
    if module.training:
        centers.copy_(_moved(started, sums, counts, module.rate))
        module.seen.copy_(known)
    return labels, started, known


def _fused(module: HasCenters, embeddings: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The centers of all classes before this batch, and which have been seen, by one kernel."""
    centers, seen = module.centers, module.seen
    started, known = torch.empty_like(centers), torch.empty_like(seen)
    tables = embeddings, labels.contiguous(), centers, seen, known, started
    options = float(module.rate), *embeddings.shape, int(module.training)
    cuda_kernels.run((SOURCE, "follow"), centers, (len(centers), THREADS), *tables, *options)
    return started, known
