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

import torch
from torch import Tensor, nn

from kinspace import checks
from kinspace.distances import distances_with_pull
from kinspace.numerics import full_precision
from kinspace.pairs import different_pairs
from kinspace.slopes import unit_with_pull, with_slopes

__all__ = ["GlobalStatistics", "global_statistics"]


@full_precision
def global_statistics(
    embeddings: Tensor, labels: Tensor, *, margin: float = 0.4, mean_weight: float = 0.8
) -> Tensor:
    """The global loss (module docstring).

    One pair of a class at 1/2 and two of different classes, at 0 and 1/2: variance 1/16, and a
    hinge of 1/2 - 1/4 + 0.4.

    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    >>> global_statistics(x, torch.tensor([0, 0, 1]))
    tensor(0.5825)
    """
    _check_options(margin, mean_weight)
    labels = checks.with_labels(embeddings, labels)
    value, slope = _value_and_slope(embeddings, labels, margin, mean_weight)
    return with_slopes(value, (embeddings, slope))


@torch.no_grad()
def _value_and_slope(
    embeddings: Tensor, labels: Tensor, margin: float, mean_weight: float
) -> tuple[Tensor, Callable[[], Tensor]]:
    x, to_embeddings = unit_with_pull(embeddings)
    squares, to_units = distances_with_pull(x)
    quarters = squares.mul_(0.25)
    different = different_pairs(labels)
    same = different.logical_not().fill_diagonal_(False)
    pull, near, pull_variance, pairs = _statistics(quarters, same)
    push, far, push_variance, others = _statistics(quarters, different)
    both = (pairs > 0) & (others > 0)
    hinge = (near - far + margin).relu_() * both
    value = torch.add(pull_variance + push_variance, hinge, alpha=mean_weight)

    def slope() -> Tensor:
        # a variance has no slope by its own mean
        step = hinge.sign() * (mean_weight / 2)
        by_pull = pull.add_(step).div_(2 * pairs)
        by_push = push.sub_(step).div_(2 * others)
        by_squares = torch.where(same, by_pull, by_push).fill_diagonal_(0)
        return to_embeddings(to_units(by_squares))

    return value, slope


def _statistics(values: Tensor, kept: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The values less the mean of those kept, 0 for others; this mean, variance and number."""
    count = kept.sum()
    some = count.clamp(min=1)
    mean = (values * kept).sum() / some
    offsets = (values - mean).mul_(kept)
    return offsets, mean, offsets.square().sum() / some, count


def _check_options(margin: float, mean_weight: float) -> None:
    checks.finite("margin", margin)
    checks.finite("mean_weight", mean_weight, at_least=0)


class GlobalStatistics(nn.Module):
    """`global_statistics` as a module.

    >>> GlobalStatistics(margin=0.2)
    GlobalStatistics(margin=0.2, mean_weight=0.8)
    """

    def __init__(self, *, margin: float = 0.4, mean_weight: float = 0.8) -> None:
        super().__init__()
        _check_options(margin, mean_weight)
        self.margin, self.mean_weight = margin, mean_weight

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return global_statistics(
            embeddings, labels, margin=self.margin, mean_weight=self.mean_weight
        )

    def extra_repr(self) -> str:
        return f"margin={self.margin}, mean_weight={self.mean_weight}"
