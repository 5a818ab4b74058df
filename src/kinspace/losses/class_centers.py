"""Class centers that follow the embeddings: the state of ALMN, its ablation, center loss and NCM.

    c_z <- c_z - rate * sum_{i: y_i = z} (c_z - x_i) / (1 + n_z)

n_z counts the samples of class z in the batch. ALMN paper Eq. 2, after Wen et al., A discriminative
feature learning approach for deep face recognition, ECCV 2016. A class seen for the first time
starts at its batch mean; the papers do not say, and a start at 0 would pull the first steps there.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.class_index import class_sums
from kinspace._core.tensor_ops import full_precision

__all__ = ["ClassCenters", "update_centers"]


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
    checks.number("rate", rate)
    centers = checks.matching_rows("centers", centers, embeddings)
    labels = checks.labels(embeddings, labels, len(centers))
    sums, counts = _sums_and_counts(embeddings, labels, len(centers))
    return _moved(centers, sums, counts, rate)


def _sums_and_counts(embeddings: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    ones = torch.ones_like(embeddings[:, :1])
    return class_sums(embeddings, labels, classes), class_sums(ones, labels, classes)


def _moved(centers: Tensor, sums: Tensor, counts: Tensor, rate: float) -> Tensor:
    return centers - rate * (counts * centers - sums) / (1 + counts)


class ClassCenters(nn.Module):
    """One center a class, (num_classes, dim), that follows the embeddings in training.

    Calling it gives the centers as they stood before the batch, in the batch's precision, and moves
    them (module docstring). A class that is seen for the first time has its batch mean. In
    evaluation nothing moves.

    >>> centers = ClassCenters(num_classes=2, dim=1, rate=1.0)
    >>> centers(torch.tensor([[1.0], [3.0]]), torch.tensor([1, 1]))
    tensor([[0.],
            [2.]])
    >>> centers.seen
    tensor([False,  True])
    """

    __call__: Callable[..., Tensor]
    centers: Tensor
    seen: Tensor

    def __init__(self, num_classes: int, dim: int, *, rate: float = 0.5) -> None:
        super().__init__()
        checks.integer("num_classes", num_classes, at_least=1)
        checks.integer("dim", dim, at_least=1)
        self.rate = checks.number("rate", rate)
        self.register_buffer("centers", torch.zeros(num_classes, dim))
        self.register_buffer("seen", torch.zeros(num_classes, dtype=torch.bool))

    @torch.no_grad()
    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """All centers as they stood before this batch, constants of the gradient."""
        centers = self.centers
        checks.matching_rows("centers", centers, embeddings)
        labels = checks.labels(embeddings, labels, len(centers))
        sums, counts = _sums_and_counts(embeddings.to(centers.dtype), labels, len(centers))
        new = (counts > 0) & ~self.seen[:, None]
        started = torch.where(new, sums / counts.clamp(min=1), centers)
        if self.training:
            centers.copy_(_moved(started, sums, counts, self.rate))
            self.seen.logical_or_(counts[:, 0] > 0)
        return started if embeddings.dtype.itemsize < 4 else started.to(embeddings.dtype)

    def known(self, labels: Tensor) -> Tensor:
        """Which classes have a center: those seen before, and those of these labels."""
        return self.seen.index_fill(0, labels, True)

    def extra_repr(self) -> str:
        """The sizes and the rate."""
        classes, dim = self.centers.shape
        return f"num_classes={classes}, dim={dim}, rate={self.rate}"
