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
(`kinspace.losses.class_centers`); with v the mean squared distance to the mean, the mean squared
distance between two classes is v_p + v_q + ||mu_p - mu_q||^2 exactly, and s_c is 2 v_c. t_0 is over
all classes seen so far; the tree holds those of the batch, which are all that its triplets ask for,
so no chain goes through another class. L = 16 and margin = 0.1 are what others use as the paper's;
we have not seen them in print.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.class_index import ClassIndex
from kinspace._core.options import keep_options, options_repr, takes_options
from kinspace._core.samples import Samples, anchor_weights, takes_labels, takes_weights
from kinspace._core.tensor_ops import upcast_half
from kinspace._core.vectors import squared_distances
from kinspace.losses.all_triplets import all_triplets
from kinspace.losses.class_centers import ClassCenters
from kinspace.losses.single_linkage import joining_heights

__all__ = ["HierarchicalTriplet", "hierarchical_triplet_loss"]

FARTHEST = 4.0  # the largest squared distance of vectors of length 1


@takes_weights
@takes_options(margin=checks.number, levels=checks.whole(1))
def hierarchical_triplet_loss(
    embeddings: Tensor,
    labels: Tensor,
    means: Tensor,
    spreads: Tensor,
    *,
    margin: float = 0.1,
    levels: int = 16,
    **samples: Unpack[Samples],
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
    spreads = checks.class_vector("spreads", spreads, len(means)).to(embeddings.dtype)
    labels = checks.labels(embeddings, labels, len(means))
    index = ClassIndex(labels)
    gaps = _gaps(index, means, spreads, 2 * spreads.mean(), levels)
    return _loss(embeddings, index, gaps, margin, anchor_weights(samples))


def _loss(
    x: Tensor, index: ClassIndex, gaps: Tensor, margin: float, weights: Tensor | None
) -> Tensor:
    # For an anchor, a negative's margin is one number: it may as well be nearer by it.
    nearer = squared_distances(x) - gaps.masked_fill(index.same, 0.0)
    return all_triplets(nearer, index, margin, "mean", weights) / 2


@torch.no_grad()
def _gaps(index: ClassIndex, means: Tensor, spreads: Tensor, start: Tensor, levels: int) -> Tensor:
    """d - s of the classes of two samples, (batch, batch); start: the lowest threshold t_0."""
    present, place = index.classes
    thresholds = _merge_thresholds(means[present], spreads[present], start, levels)
    gaps = thresholds - 2 * spreads[present][:, None]  # (classes, classes)
    return gaps[place[:, None], place]


def _merge_thresholds(means: Tensor, spreads: Tensor, start: Tensor, levels: int) -> Tensor:
    """d, the threshold at which the tree merges two classes, (classes, classes)."""
    heights = joining_heights(squared_distances(means) + spreads + spreads[:, None])
    steps = torch.arange(levels, device=heights.device, dtype=heights.dtype) / levels
    rise = (FARTHEST - start).clamp(min=0)
    level = torch.searchsorted(start + steps * rise, heights, right=True)  # thresholds passed
    return start + level.to(heights.dtype) / levels * rise


class HierarchicalTriplet(nn.Module):
    """`hierarchical_triplet_loss` with the means and spreads of its classes, moved in training.

    >>> criterion = HierarchicalTriplet(num_classes=2, dim=2)
    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    >>> criterion(x, torch.tensor([0, 0, 1]))  # 2 apart, the next threshold 2.25
    tensor(0.1750)
    """

    __call__: Callable[..., Tensor]
    margin: float
    levels: int
    extra_repr = options_repr

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
        keep_options(self, hierarchical_triplet_loss, margin=margin, levels=levels)
        # the mean of each class and, last, its mean squared length
        dim = checks.integer("dim", dim, at_least=1)
        self.class_centers = ClassCenters(num_classes, dim + 1, rate=rate)

    @takes_labels
    def forward(self, embeddings: Tensor, labels: Tensor, **samples: Unpack[Samples]) -> Tensor:
        tracked = self.class_centers
        checks.matching_rows("centers", tracked.centers[:, :-1], embeddings)
        labels = checks.labels(embeddings, labels, len(tracked.centers))
        x, index = upcast_half(embeddings), ClassIndex(labels)
        with torch.no_grad():
            centers = tracked(torch.cat([x, x.square().sum(1, keepdim=True)], 1), labels)
            means, lengths = centers[:, :-1], centers[:, -1]
            # those of classes not seen so far are 0
            spreads = (lengths - means.square().sum(1)).clamp(min=0)
            start = 2 * spreads.sum() / tracked.known(index.labels).sum()
        gaps = _gaps(index, means, spreads, start, self.levels)
        return _loss(x, index, gaps, self.margin, anchor_weights(samples))
