"""Margin loss: distances on the right side of a boundary, by a margin, for given triplets.

    L = sum_{(a, p, n)} ( max(0, D_ap - b + margin) + max(0, b - D_an + margin) ) / max(1, active)

D is the plain distance, b the boundary, active the number of terms above 0. The module draws the
negatives by distance-weighted sampling and learns one boundary a class.

Wu et al., Sampling matters in deep embedding learning, ICCV 2017, Eq. 5-6.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from kinspace import checks
from kinspace.distances import LISTED, SMALL_ON_GPU, listed_distances_with_pull
from kinspace.draws import Draws
from kinspace.miners.distance_weighted import beside_negatives
from kinspace.numerics import full_precision, zero_of
from kinspace.pairs import class_table
from kinspace.slopes import unit_with_pull, with_slopes

__all__ = ["Margin", "margin_loss"]


@full_precision
def margin_loss(
    embeddings: Tensor, triplets: Tensor, *, margin: float = 0.2, boundary: float | Tensor = 1.2
) -> Tensor:
    """Margin loss (module docstring) on triplets (T, 3) of indices: anchor, positive, negative.

    boundary: one number, or a tensor with one entry a triplet, which is differentiated.

    Positive at 1.5, negative at 1: 0.5 + 0.4 over two active terms.

    >>> x = torch.tensor([[0.0], [1.5], [-1.0]])
    >>> margin_loss(x, torch.tensor([[0, 1, 2]]))
    tensor(0.4500)
    """
    checks.vectors("embeddings", embeddings)
    checks.finite("margin", margin)
    triplets = _triplets(triplets, embeddings)
    if isinstance(boundary, Tensor):
        if boundary.shape != triplets.shape[:1]:
            raise ValueError(
                f"boundary: expected a number or shape ({len(triplets)},), one entry a triplet, "
                f"got {tuple(boundary.shape)}"
            )
    else:
        checks.finite("boundary", boundary)
    anchors = triplets[:, 0].repeat(2)
    distances, pull = listed_distances_with_pull(embeddings, anchors, triplets[:, 1:].T.flatten())
    value, slopes = _hinges(distances.view(2, -1), boundary, margin)
    sources = [(embeddings, lambda: pull(slopes.flatten()))]
    if isinstance(boundary, Tensor):
        sources.append((boundary, lambda: -slopes.sum(0)))
    return with_slopes(value, *sources)


@torch.no_grad()
def _hinges(
    distances: Tensor, boundary: float | Tensor, margin: float, used: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The loss and its slopes by the distances: those of the positives, and of the negatives."""
    hinges = distances - boundary
    hinges[1].neg_()
    hinges.add_(margin).relu_()
    if used is not None:
        hinges *= used
    slopes = hinges.sign()
    active = slopes.sum().clamp_(min=1)
    slopes /= active
    slopes[1].neg_()
    return hinges.sum() / active, slopes


def _triplets(triplets: Tensor, embeddings: Tensor) -> Tensor:
    if not isinstance(triplets, Tensor) or triplets.ndim != 2 or triplets.shape[1] != 3:
        came = tuple(triplets.shape) if isinstance(triplets, Tensor) else type(triplets).__name__
        raise ValueError(f"triplets: expected a tensor of shape (T, 3), got {came}")
    if triplets.is_floating_point() or triplets.dtype == torch.bool:
        raise ValueError(f"triplets: expected integers, got {triplets.dtype}")
    if len(triplets) and not torch.compiler.is_compiling():
        low, high = torch.stack(triplets.aminmax()).tolist()
        if low < 0 or high >= len(embeddings):
            raise ValueError(
                f"triplets: expected indices in 0..{len(embeddings) - 1}, got {low}..{high}"
            )
    return triplets.long()


class Margin(nn.Module):
    """Margin loss with distance-weighted sampling and a learnt boundary a class.

    The embeddings are scaled to length 1, where the sampling has its meaning. Draws depend on the
    seed and on the number of calls in training, both part of the state: a restored module goes on
    with the same draws, and every process makes the same ones on a gathered batch.

    boundary_weight: how strongly a large boundary is held down (the paper's nu).

    >>> criterion = Margin(num_classes=2)
    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.8, 0.6]])
    >>> criterion(x, torch.tensor([0, 0, 1])) > 0
    tensor(True)
    """

    def __init__(
        self,
        num_classes: int,
        *,
        margin: float = 0.2,
        boundary: float = 1.2,
        boundary_weight: float = 0.0,
        cutoff: float = 0.5,
        nonzero_cutoff: float = 1.4,
        seed: int = 0,
    ) -> None:
        super().__init__()
        checks.whole("num_classes", num_classes, at_least=1)
        self.margin = checks.finite("margin", margin)
        self.boundary_weight = checks.finite("boundary_weight", boundary_weight, at_least=0)
        self.cutoff = checks.positive("cutoff", cutoff)
        self.nonzero_cutoff = checks.positive("nonzero_cutoff", nonzero_cutoff)
        self.draws = Draws(seed)
        checks.finite("boundary", boundary)
        self.boundary = nn.Parameter(torch.full((num_classes,), float(boundary)))

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        labels = checks.with_labels(embeddings, labels, len(self.boundary))
        loss = _drawn_loss(embeddings, labels, self.draws(embeddings.device), self)
        if not self.boundary_weight:
            return loss
        return loss + self.boundary_weight * self.boundary.to(loss.dtype)[labels].mean()

    def extra_repr(self) -> str:
        return (
            f"margin={self.margin}, boundary_weight={self.boundary_weight}, "
            f"cutoff={self.cutoff}, nonzero_cutoff={self.nonzero_cutoff}"
        )


@full_precision
def _drawn_loss(
    embeddings: Tensor, labels: Tensor, generator: torch.Generator, module: Margin
) -> Tensor:
    """The loss but for what holds the boundaries down."""
    index, positive = class_table(labels)
    boundary = module.boundary
    if index.shape[1] == len(labels):  # one class: no negatives
        return zero_of(embeddings, boundary)
    x, pull_unit = unit_with_pull(embeddings)
    cutoffs = (module.cutoff, module.nonzero_cutoff)
    distances, pull = _distances_with_pull(x, beside_negatives(x, index, generator, cutoffs))
    both = distances.unflatten(1, (2, -1)).transpose(0, 1)  # (2, batch, class)
    own = boundary.detach().to(x.dtype).index_select(0, labels)[:, None]
    value, slopes = _hinges(both, own, module.margin, positive)

    def by_embeddings() -> Tensor:
        return pull_unit(pull(slopes.transpose(0, 1).flatten(1)))

    def by_boundary() -> Tensor:
        by_own = slopes.sum(2).sum(0)  # where as many pull as push, exactly 0
        grad = own.new_zeros(boundary.shape).index_add_(0, labels, by_own, alpha=-1)
        return grad.to(boundary.dtype)

    return with_slopes(value, (embeddings, by_embeddings), (boundary, by_boundary))


def _distances_with_pull(x: Tensor, others: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """||x_i - x_j|| for the j listed for each i (batch, some), and their pull."""
    listed = others.flatten()
    simply = max(LISTED * len(x) ** 2, SMALL_ON_GPU if x.is_cuda else 0)
    if listed.numel() * x.shape[1] > simply:
        anchors = torch.arange(len(x), device=x.device)[:, None].expand_as(others).flatten()
        distances, back = listed_distances_with_pull(x, anchors, listed)
        return distances.view_as(others), lambda grad: back(grad.flatten())
    apart = x[:, None] - x.index_select(0, listed).view(*others.shape, -1)
    distances = torch.linalg.vector_norm(apart, dim=2)

    def pull(grad: Tensor) -> Tensor:
        flow = apart.mul_((grad / functional.threshold(distances, 0, math.inf))[..., None])
        return flow.sum(1).index_add_(0, listed, flow.flatten(0, 1), alpha=-1)

    return distances, pull
