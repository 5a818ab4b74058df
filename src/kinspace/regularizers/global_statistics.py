"""Global statistics: distances within classes alike and small, between classes alike and large.

    R = var+ + var- + mean_weight * max(0, mean+ - mean- + margin)

Mean and variance (its sum over the number of pairs) of ||f_i - f_j||^2 / 4, over all pairs of the
batch of one class (+) and of different classes (-); f are the embeddings scaled to length 1, so
that these lie in [0, 1]. No pair of a kind: its variance is 0, and so is the hinge.

Kumar et al., Learning local image descriptors with deep siamese and triplet convolutional networks
by minimizing global loss functions, CVPR 2016: the global loss, for use beside a triplet loss, as
by Harwood et al., Smart mining for deep metric learning, ICCV 2017. There the pairs are those of
the batch's triplets; here all pairs. margin 0.4 and mean_weight 0.8 are what public code for the
first paper has; we have not seen them in its print.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.class_index import ClassIndex
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.tensor_ops import full_precision
from kinspace._core.vectors import fill_diagonal, squared_distances, unit

__all__ = ["GlobalStatistics", "global_statistics"]


@full_precision
@takes_options(margin=checks.number, mean_weight=checks.at_least(0))
def global_statistics(
    embeddings: Tensor, labels: Tensor, *, margin: float = 0.4, mean_weight: float = 0.8
) -> Tensor:
    """The global loss (module docstring).

    One pair of a class at 1/2 and two of different classes, at 0 and 1/2: variance 1/16, and a
    hinge of 1/2 - 1/4 + 0.4.

    >>> import torch
    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    >>> global_statistics(x, torch.tensor([0, 0, 1]))
    tensor(0.5825)
    """
    labels = checks.labels(embeddings, labels)
    distances = squared_distances(unit(embeddings)) / 4  # (batch, batch)
    different = ClassIndex(labels).different
    same = fill_diagonal(~different, False)
    near, near_variance = _mean_and_variance(distances, same)
    far, far_variance = _mean_and_variance(distances, different)
    hinge = (near - far + margin).relu() * (same.any() & different.any())
    return near_variance + far_variance + mean_weight * hinge


def _mean_and_variance(values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Of the values that the mask keeps; 0 over none."""
    count = mask.sum().clamp(min=1)
    mean = (values * mask).sum() / count
    return mean, ((values - mean) * mask).square().sum() / count


class GlobalStatistics(nn.Module):
    """`global_statistics` as a module.

    >>> GlobalStatistics(margin=0.2)
    GlobalStatistics(margin=0.2, mean_weight=0.8)
    """

    __call__: Callable[..., Tensor]
    takes = "embeddings"
    extra_repr = options_repr

    def __init__(self, *, margin: float = 0.4, mean_weight: float = 0.8) -> None:
        super().__init__()
        keep_options(self, global_statistics, margin=margin, mean_weight=mean_weight)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return global_statistics(embeddings, labels, **kept_options(self))
