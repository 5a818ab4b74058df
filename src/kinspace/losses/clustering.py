"""Clustering loss: the true clustering must score above every other by the margin of its NMI.

    L = max(0, max_S [ F(X, S) + w (1 - NMI(g(S), y)) ] - F~(X, y))
    F(X, S)  = -sum_i min_{j in S} ||x_i - x_j||
    F~(X, y) = sum_classes max_{j in class} -sum_{i in class} ||x_i - x_j||

S are as many medoids as the batch has classes, g(S) assigns each sample to its nearest medoid. The
best S is found greedily, one medoid at a time; it is a constant of the gradient. NMI = 2I/(H + H').

Oh Song et al., Deep metric learning via facility location, CVPR 2017, Eq. 4-7 and algorithm 1.
Their algorithm 2, a local search by swaps after the greedy one, is left out: it is as long again
and moves the maximum little. Unlike all other losses here this one takes one step after another,
one a class (`medoids`). It is here for comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from kinspace import checks, cuda_kernels
from kinspace.distances import finite_distances
from kinspace.losses.medoids import greedy_medoids
from kinspace.numerics import full_precision
from kinspace.pairs import class_runs
from kinspace.slopes import with_slopes, without_zero

__all__ = ["Clustering", "clustering_loss"]

# of the kernels
SOURCE = Path(__file__).with_suffix(".cu")
THREADS = 256
BLOCKS = 64


@full_precision
def clustering_loss(embeddings: Tensor, labels: Tensor, *, margin_weight: float = 1.0) -> Tensor:
    """Clustering loss (module docstring).

    Medoids 0 and 2 recover the classes; the margin prefers two medoids in one class:
    -17 less -2, and 1 less its NMI on top, never pays, so the loss is 0.

    >>> x = torch.tensor([[0.0], [1.0], [9.0], [10.0]])
    >>> clustering_loss(x, torch.tensor([0, 0, 1, 1]))
    tensor(0.)
    """
    labels = checks.with_labels(embeddings, labels, read=False)
    checks.finite("margin_weight", margin_weight, at_least=0)
    x = embeddings.detach()
    with torch.no_grad():
        # one that overflows is the farthest: no medoid is out of its reach
        in_order = finite_distances(x)
        order, begins, sizes = class_runs(labels)
        widest = int(sizes.max())
        distances, tops = in_order(order)  # class after class
        found, nmi = greedy_medoids(distances, tops, begins, widest, margin_weight)
        # on a GPU all that follows is launched while the medoids are still searched: nothing waits
        search = _Search(distances, order, begins, found, nmi, margin_weight)
        value, slope = (_fused if cuda_kernels.takes(x) else _ends)(x, search)
    return with_slopes(value, (embeddings, slope))


class _Search(NamedTuple):
    """Medoids found, for samples class after class."""

    distances: Tensor
    order: Tensor  # the samples so
    begins: Tensor  # where each class begins, and the end
    found: Tensor  # each sample's
    nmi: Tensor
    margin_weight: float


def _ends(x: Tensor, search: _Search) -> tuple[Tensor, Callable[[], Tensor]]:
    """The loss, from the medoids found, and how to make its gradient."""
    order, begins = search.order, search.begins
    true = _class_medoids(search.distances, begins, int(begins.diff().max()))
    both = order[torch.stack((true, search.found))]
    both = torch.empty_like(both).index_copy_(1, order, both).flatten()
    apart = x - x.index_select(0, both).view(2, *x.shape)
    lengths = torch.linalg.vector_norm(apart, dim=2)
    gap = (lengths[0] - lengths[1]).sum() + search.margin_weight * (1 - search.nmi)

    def slope() -> Tensor:
        flow = apart.div_(without_zero(lengths)[..., None]).mul_(gap > 0)
        flow[1].neg_()
        return flow.sum(0).index_add_(0, both, flow.flatten(0, 1), alpha=-1)

    return gap.relu(), slope


def _fused(x: Tensor, search: _Search) -> tuple[Tensor, Callable[[], Tensor]]:
    """`_ends` in two kernels."""
    distances, order, begins, found, nmi, margin_weight = search
    gaps, slopes, value = x.new_empty(len(x)), x.new_zeros(x.shape), x.new_empty(())
    tables = x.contiguous(), distances, order, begins, found, gaps, slopes
    grid, tiny = (len(begins) - 1, THREADS), torch.finfo(x.dtype).tiny
    cuda_kernels.run((SOURCE, "class_terms"), x, grid, *tables, tiny, *x.shape)
    parts = gaps, nmi, slopes, value, float(margin_weight), *x.shape
    cuda_kernels.run((SOURCE, "hinge"), x, (BLOCKS, THREADS), *parts)
    return value, lambda: slopes


def _class_medoids(distances: Tensor, begins: Tensor, widest: int) -> Tensor:
    """For each sample that of its class with the smallest summed distance to the others.

    By place, class after class, of which the widest has so many.
    """
    size = len(distances)
    runs = torch.stack((begins[:-1], begins[1:] - 1))
    first, last = runs.repeat_interleave(begins.diff(), 1, output_size=size).unsqueeze(2)
    places = first + torch.arange(widest, device=begins.device)
    members = torch.minimum(places, last)  # filled up with the last of the class
    costs = distances.gather(1, members).masked_fill_(places > last, 0).sum(1)
    return members.gather(1, costs[members].argmin(1, keepdim=True))[:, 0]


class Clustering(nn.Module):
    """`clustering_loss` as a module.

    >>> Clustering()
    Clustering(margin_weight=1.0)
    """

    def __init__(self, *, margin_weight: float = 1.0) -> None:
        super().__init__()
        self.margin_weight = checks.finite("margin_weight", margin_weight, at_least=0)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return clustering_loss(embeddings, labels, margin_weight=self.margin_weight)

    def extra_repr(self) -> str:
        return f"margin_weight={self.margin_weight}"
