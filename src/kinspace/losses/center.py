"""Center loss: every sample to the center of its class.

    L = 1/(2N) sum_i ||x_i - c_{y_i}||^2

It only pulls, so it goes beside a loss that pushes. The centers are buffers moved by their own rule
(`kinspace.losses.class_centers`), not by the gradient; the function differentiates given centers.

Wen et al., A discriminative feature learning approach for deep face recognition, ECCV 2016, Eq. 2.
The paper sums over the batch; the mean does not change with its size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.samples import Samples, takes_labels, takes_samples
from kinspace._core.tensor_ops import REDUCTIONS, reduce
from kinspace.losses.class_centers import ClassCenters

__all__ = ["Center", "center_loss"]


@takes_samples
@takes_options(reduction=checks.one_of(REDUCTIONS))
def center_loss(
    embeddings: Tensor,
    labels: Tensor,
    centers: Tensor,
    *,
    reduction: str = "mean",
    **samples: Unpack[Samples],
) -> Tensor:
    """Center loss (module docstring).

    >>> import torch
    >>> center_loss(torch.tensor([[3.0, 4.0]]), torch.tensor([0]), torch.zeros(1, 2))
    tensor(12.5000)
    """
    centers = checks.matching_rows("centers", centers, embeddings)
    labels = checks.labels(embeddings, labels, len(centers))
    return reduce((embeddings - centers[labels]).square().sum(1) / 2, reduction)


class Center(nn.Module):
    """`center_loss` with its class centers, kept as buffers and moved in training.

    >>> import torch
    >>> criterion = Center(num_classes=2, dim=1)
    >>> criterion(torch.tensor([[1.0], [3.0]]), torch.tensor([1, 1]))
    tensor(0.5000)
    """

    __call__: Callable[..., Tensor]
    extra_repr = options_repr

    def __init__(
        self, num_classes: int, dim: int, *, rate: float = 0.5, reduction: str = "mean"
    ) -> None:
        super().__init__()
        keep_options(self, center_loss, reduction=reduction)
        self.class_centers = ClassCenters(num_classes, dim, rate=rate)

    @property
    def centers(self) -> Tensor:
        """The centers as they stand, (classes, dim)."""
        return self.class_centers.centers

    @takes_labels
    def forward(self, embeddings: Tensor, labels: Tensor, **samples: Unpack[Samples]) -> Tensor:
        centers = self.class_centers(embeddings, labels)
        return center_loss(embeddings, labels, centers, **kept_options(self), **samples)
