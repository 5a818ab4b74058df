"""Hierarchical triplet loss: a margin for each pair of classes, from a tree of the classes.

    L = 1/(2T) sum_{a, p, n} max(0, D_ap - D_an + margin + d(y_a, y_n) - s_{y_a})

over all T triplets, D the squared distance of vectors of length 1. s_c is the mean squared distance
of two samples of class c, and d(p, q) the threshold at which the tree merges p and q. The tree has
the levels l = 0..L with the thresholds

    t_l = l (4 - t_0) / L + t_0,   t_0 = mean_c s_c

and on level l two classes are one node where their mean squared distance is below t_l, or a chain
of such pairs joins them. Over the positives of an anchor, D_ap is s on average: a negative is asked
to be farther than d, by the margin.

Ge, Huang, Dong and Scott, Deep metric learning with hierarchical triplet loss, ECCV 2018, section
3. Deviations: the paper takes the distances of classes from a pass over the training set in each
epoch. We follow the mean and the mean squared length of each class through training
(`kinspace.losses.centers`); with v the mean squared distance to the mean, the mean squared distance
between two classes is v_p + v_q + ||mu_p - mu_q||^2 exactly, and s_c is 2 v_c. t_0 is over all
classes seen so far; the tree holds those of the batch, which are all that its triplets ask for, so
no chain goes through another class. L = 16 and margin = 0.1 are what others use as the paper's; we
have not seen them in print.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kinspace import checks
from kinspace.distances import distances_with_pull, squared_distances
from kinspace.losses.centers import follow_all, register_centers
from kinspace.losses.triplet import all_triplets
from kinspace.numerics import full_precision, raise_half
from kinspace.pairs import classes
from kinspace.slopes import with_slopes

__all__ = ["HierarchicalTriplet", "hierarchical_triplet_loss"]

FARTHEST = 4.0  # the largest squared distance of vectors of length 1


@full_precision
def hierarchical_triplet_loss(
    embeddings: Tensor,
    labels: Tensor,
    means: Tensor,
    spreads: Tensor,
    *,
    margin: float = 0.1,
    levels: int = 16,
) -> Tensor:
    """Hierarchical triplet loss (module docstring). The embeddings should have length 1.

    means (classes, dim) and spreads (classes,): of each class its mean and the mean squared
    distance of its samples to it. They are constants of the gradient.

    The classes have no spread, so t_0 is 0; their distance of 4 is below no threshold, and the last
    is 4. Two triplets: max(0, 0 - 4 + 0.1 + 4 - 0), halved.

    >>> x, labels = torch.tensor([[1.0], [1.0], [-1.0]]), torch.tensor([0, 0, 1])
    >>> hierarchical_triplet_loss(x, labels, torch.tensor([[1.0], [-1.0]]), torch.zeros(2))
    tensor(0.0500)
    """
    means = checks.matching_rows("means", means, embeddings)
    spreads = checks.one_of_each_class("spreads", spreads, len(means)).to(embeddings.dtype)
    labels = checks.with_labels(embeddings, labels, len(means))
    checks.finite("margin", margin)
    checks.whole("levels", levels, at_least=1)
    thresholds = _thresholds(2 * spreads.mean(), levels)
    return _loss(embeddings, labels, _margins(labels, means, spreads, thresholds, margin))


@torch.no_grad()
def _thresholds(start: Tensor, levels: int) -> Tensor:
    step = (FARTHEST - start).clamp(min=0) / levels
    return start + step * torch.arange(levels + 1, device=start.device)


@full_precision
def _loss(embeddings: Tensor, labels: Tensor, margins: Tensor) -> Tensor:
    """The loss from the margin of each pair of samples."""
    distances, pull = distances_with_pull(embeddings)
    # for an anchor, a negative's margin is one number: it may as well be nearer by it
    value, by_distances = all_triplets(distances - margins, labels, 0.0, "mean")
    return with_slopes(value / 2, (embeddings, lambda: pull(by_distances().div_(2))))


@torch.no_grad()
def _margins(
    labels: Tensor, means: Tensor, spreads: Tensor, thresholds: Tensor, margin: float
) -> Tensor:
    """The margin of each pair of samples (batch, batch); 0 within a class."""
    present, place = classes(labels)
    # inside torch.compile there are rows without a class: no chain goes through these
    own = spreads.new_full(present.shape, torch.inf).index_copy_(0, place, spreads[labels])
    between = squared_distances(means[present]) + own + own[:, None]
    for through in range(len(between)):
        chain = torch.maximum(between[:, through, None], between[through])
        between = torch.minimum(between, chain)
    level = torch.searchsorted(thresholds, between, right=True).clamp_(max=len(thresholds) - 1)
    margins = (thresholds[level] - 2 * own[:, None]).add_(margin).fill_diagonal_(0)
    return margins[place[:, None], place]


class HierarchicalTriplet(nn.Module):
    """`hierarchical_triplet_loss` with the means and spreads of its classes, moved in training.

    centers (classes, dim + 1): the mean of each class and, last, its mean squared length.

    >>> criterion = HierarchicalTriplet(num_classes=2, dim=2)
    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> criterion(x, torch.tensor([0, 0, 1]))  # 2 apart, the next threshold 2.25
    tensor(0.1750)
    """

    centers: Tensor
    seen: Tensor

    def __init__(
        self,
        num_classes: int,
        dim: int,
        *,
        margin: float = 0.1,
        levels: int = 16,
        rate: float = 0.5,
    ) -> None:
        super().__init__()
        self.margin = checks.finite("margin", margin)
        self.levels = checks.whole("levels", levels, at_least=1)
        self.rate = checks.finite("rate", rate)
        register_centers(self, num_classes, checks.whole("dim", dim, at_least=1) + 1)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        checks.matching_rows("centers", self.centers[:, :-1], embeddings)
        with torch.no_grad():
            x = raise_half(embeddings)
            followed = torch.cat([x, x.square().sum(1, keepdim=True)], 1)
            labels, centers, known = follow_all(self, followed, labels)
            means = centers[:, :-1].to(x.dtype)
            spreads = (centers[:, -1].to(x.dtype) - means.square().sum(1)).clamp_(min=0)
            thresholds = _thresholds(2 * (spreads * known).sum() / known.sum(), self.levels)
            margins = _margins(labels, means, spreads, thresholds, self.margin)
        return _loss(embeddings, labels, margins)

    def extra_repr(self) -> str:
        return f"margin={self.margin}, levels={self.levels}, rate={self.rate}"
