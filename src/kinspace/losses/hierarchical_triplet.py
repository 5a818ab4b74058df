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

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from kinspace import checks
from kinspace.distances import distances_with_pull
from kinspace.losses import hierarchical_triplet_kernel as kernel
from kinspace.losses.centers import follow_all, register_centers
from kinspace.losses.triplet import all_triplets
from kinspace.numerics import full_precision, raise_half
from kinspace.pairs import class_order, classes
from kinspace.slopes import with_slopes

__all__ = ["HierarchicalTriplet", "hierarchical_triplet_loss"]

FARTHEST = 4.0  # the largest squared distance of vectors of length 1
FEW = 32  # classes up to which squaring is as quick as linkage on a CPU


# Of all classes: means (classes, dim), the mean squared length in each (classes,) and the mean
# squared distance to its mean (classes,); and the lowest threshold.
_Known = tuple[Tensor, Tensor, Tensor, Tensor]


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
    with torch.no_grad():
        lengths = spreads + means.square().sum(1)
        known = (means, lengths, spreads, 2 * spreads.mean())
    return _loss(embeddings, labels, known, levels, margin)


@full_precision
def _loss(embeddings: Tensor, labels: Tensor, known: _Known, levels: int, margin: float) -> Tensor:
    if kernel.ready(embeddings):
        groups = class_order(labels)
        if groups[-1].max() <= kernel.WIDEST:
            value, slope = _fused(embeddings.detach(), groups, known, levels, margin)
            return with_slopes(value, (embeddings, slope))
    distances, pull = distances_with_pull(embeddings)
    # for an anchor, a negative's margin is one number: it may as well be nearer by it
    distances.sub_(_margins(labels, known, levels, margin))
    value, by_distances = all_triplets(distances, labels, 0.0, "mean")
    return with_slopes(value / 2, (embeddings, lambda: pull(by_distances()).div_(2)))


@torch.no_grad()
def _fused(
    x: Tensor,
    groups: tuple[Tensor, Tensor, Tensor, Tensor, Any],
    known: _Known,
    levels: int,
    margin: float,
) -> tuple[Tensor, Callable[[], Tensor]]:
    """The value and its slope by two GPU kernels; groups: those of `class_order`."""
    present, place, order, starts, sizes = groups
    means, lengths, spreads = (table.index_select(0, present) for table in known[:3])
    start = known[3]
    nodes = kernel.nodes(means @ means.T, lengths, start, levels)
    centered = x - x.mean(0)
    norms = torch.linalg.vector_norm(centered, dim=1)
    totals, signs, pulls = kernel.hinges(
        centered @ centered.T,
        x.contiguous(),
        norms,
        (place, order, starts),
        (nodes, spreads, start),
        margin,
        int(sizes.max()),
    )
    count = max(int((sizes * (sizes - 1) * (len(x) - sizes)).sum()), 1)

    def slope() -> Tensor:
        weights = signs + signs.T
        pulls.addcmul_(weights.sum(1, keepdim=True), centered)
        return pulls.addmm_(weights, centered, beta=1 / count, alpha=-1 / count)

    return totals.sum().div_(2 * count), slope


@torch.no_grad()
@full_precision
def _margins(labels: Tensor, known: _Known, levels: int, margin: float) -> Tensor:
    """The margin of each pair of samples (batch, batch); 0 within a class."""
    if torch.compiler.is_compiling():  # no size may depend on values: a class may appear twice
        present, place = labels, torch.arange(len(labels), device=labels.device)
    else:
        present, place = classes(labels)
    means, lengths, spreads = (table.index_select(0, present) for table in known[:3])
    between = torch.addmm(lengths, means, means.T, alpha=-2).add_(lengths[:, None]).clamp_(min=0)
    start = known[3]
    step = (FARTHEST - start).clamp_(min=0).div_(levels)
    numbers = torch.arange(levels, device=step.device, dtype=step.dtype)
    thresholds = torch.addcmul(start, step, numbers)  # but for the last
    level = _meeting_levels(between, thresholds)  # (classes, classes)
    own = torch.add(start + margin, spreads, alpha=-2)
    margins = torch.addcmul(own[:, None], step, level)
    return margins.masked_fill_(present[:, None] == present, 0)[place[:, None], place]


def _meeting_levels(between: Tensor, thresholds: Tensor) -> Tensor:
    """On how many levels no chain of pairs below the threshold joins two classes."""
    if len(between) > FEW and not (between.is_cuda or torch.compiler.is_compiling()):
        return _linked_levels(between, thresholds)
    # Chains of up to 1, 2, 4, 8 pairs, by squaring the table of who is joined to whom: a few large
    # products, and nothing to wait for. All that is asked of a number is whether it is above 0, for
    # which bfloat16 will do: it has the range of float32, where three squarings fit.
    joined = between.fill_diagonal_(-1) < thresholds[:, None, None]  # (levels, classes, classes)
    chains = joined.to(torch.bfloat16 if between.is_cuda else between.dtype)
    for doubling in range((len(between) - 1).bit_length()):
        chains = chains @ chains
        if doubling % 3 == 2:
            chains.clamp_(max=1)
    return (chains == 0).sum(0, dtype=between.dtype)


def _linked_levels(between: Tensor, thresholds: Tensor) -> Tensor:
    """The same for two or more classes by single linkage: less work, on the host."""
    from scipy.cluster.hierarchy import cophenet, linkage
    from scipy.spatial.distance import squareform

    tree = linkage(squareform(between.nan_to_num_().numpy(), checks=False))
    tree[:, 2] = np.searchsorted(thresholds.numpy(), tree[:, 2], side="right")
    return torch.from_numpy(squareform(cophenet(tree))).to(between.dtype)


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
            labels, centers, seen = follow_all(self, followed, labels)
            means, lengths = centers.to(x.dtype).split([x.shape[1], 1], 1)
            lengths = lengths[:, 0]
            centers_lengths = torch.linalg.vector_norm(means, dim=1)
            spreads = torch.addcmul(lengths, centers_lengths, centers_lengths, value=-1)
            spreads.clamp_(min=0)  # those of classes not seen so far are 0
            start = spreads.sum().mul_(2).div_(seen.sum())
        known = (means, lengths, spreads, start)
        return _loss(embeddings, labels, known, self.levels, self.margin)

    def extra_repr(self) -> str:
        return f"margin={self.margin}, levels={self.levels}, rate={self.rate}"
