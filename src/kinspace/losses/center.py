"""Center loss: every sample to the center of its class.

    L = 1/(2N) sum_i ||x_i - c_{y_i}||^2

It only pulls, so it goes beside a loss that pushes. The centers are buffers moved by their own rule
(`kinspace.losses.centers`), not by the gradient; the function differentiates given centers.

Wen et al., A discriminative feature learning approach for deep face recognition, ECCV 2016, Eq. 2.
The paper sums over the batch; the mean does not change with its size.
"""

from __future__ import annotations

from torch import Tensor, nn

from kinspace import checks
from kinspace.losses.centers import follow, register_centers
from kinspace.numerics import full_precision

__all__ = ["Center", "center_loss"]


@full_precision
def center_loss(embeddings: Tensor, labels: Tensor, centers: Tensor) -> Tensor:
    """Center loss (module docstring).

    >>> import torch
    >>> center_loss(torch.tensor([[3.0, 4.0]]), torch.tensor([0]), torch.zeros(1, 2))
    tensor(12.5000)
    """
    centers = checks.matching_rows("centers", centers, embeddings)
    labels = checks.with_labels(embeddings, labels, len(centers))
    return _loss(embeddings, centers.index_select(0, labels))


@full_precision
def _loss(embeddings: Tensor, own: Tensor) -> Tensor:
    offsets = embeddings - own
    return offsets.square().sum() / (2 * len(embeddings))


class Center(nn.Module):
    """`center_loss` with its class centers, kept as buffers and moved in training.

    >>> import torch
    >>> criterion = Center(num_classes=2, dim=1)
    >>> criterion(torch.tensor([[1.0], [3.0]]), torch.tensor([1, 1]))
    tensor(0.5000)
    """

    centers: Tensor
    seen: Tensor

    def __init__(self, num_classes: int, dim: int, *, rate: float = 0.5) -> None:
        super().__init__()
        self.rate = checks.finite("rate", rate)
        register_centers(self, num_classes, dim)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        _, own = follow(self, embeddings, labels)
        return _loss(embeddings, own)

    def extra_repr(self) -> str:
        return f"rate={self.rate}"
