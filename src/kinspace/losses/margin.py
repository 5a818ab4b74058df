"""Margin loss: distances on the right side of a boundary, by a margin, for given triplets.

    L = sum_{(a, p, n)} ( max(0, D_ap - b + margin) + max(0, b - D_an + margin) ) / max(1, active)

D is the plain distance, b the boundary, active the number of terms above 0. The module draws the
negatives by distance-weighted sampling and learns one boundary a class.

Wu et al., Sampling matters in deep embedding learning, ICCV 2017, Eq. 5-6.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.checks import options_repr
from kinspace._core.class_index import ClassIndex
from kinspace._core.rng import StepGenerator
from kinspace._core.tensor_ops import full_precision, is_traced, upcast_half
from kinspace._core.vectors import paired_distances, unit
from kinspace.miners.distance_weighted import drawn_triplets

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
    checks.number("margin", margin)
    triplets = _checked_triplets(triplets, embeddings)
    if not isinstance(boundary, Tensor) or not boundary.ndim:
        checks.number("boundary", boundary)
    elif boundary.shape != triplets.shape[:1]:
        raise ValueError(
            f"boundary: expected a number or shape ({len(triplets)},), one entry a triplet, "
            f"got {tuple(boundary.shape)}"
        )
    return _loss(embeddings, triplets, boundary, margin)


@full_precision
def _loss(
    x: Tensor,
    triplets: Tensor,
    boundary: float | Tensor,
    margin: float,
    counts: Tensor | None = None,
) -> Tensor:
    """The loss on the triplets that count, (T,); on all of them where that is left out."""
    anchor, positive, negative = triplets.unbind(1)
    pull = (paired_distances(x, anchor, positive) - boundary + margin).relu()
    push = (boundary - paired_distances(x, anchor, negative) + margin).relu()
    if counts is not None:
        pull, push = pull.masked_fill(~counts, 0.0), push.masked_fill(~counts, 0.0)
    active = (pull > 0).sum() + (push > 0).sum()
    return (pull + push).sum() / active.clamp(min=1)


def _checked_triplets(triplets: Tensor, embeddings: Tensor) -> Tensor:
    if not isinstance(triplets, Tensor) or triplets.ndim != 2 or triplets.shape[1] != 3:
        came = tuple(triplets.shape) if isinstance(triplets, Tensor) else type(triplets).__name__
        raise ValueError(f"triplets: expected a tensor of shape (T, 3), got {came}")
    if triplets.is_floating_point() or triplets.dtype == torch.bool:
        raise ValueError(f"triplets: expected integers, got {triplets.dtype}")
    if len(triplets) and triplets.is_cpu and not is_traced(triplets):
        low, high = (int(end) for end in triplets.aminmax())
        if low < 0 or high >= len(embeddings):
            raise ValueError(
                f"triplets: expected indices in 0..{len(embeddings) - 1}, got {low}..{high}"
            )
    return triplets.long()


class Margin(nn.Module):
    """Margin loss with distance-weighted sampling and a learnt boundary a class.

    The embeddings are scaled to length 1, where the sampling has its meaning. The samples depend on
    the seed and on the number of calls in training, both part of the state: a restored module goes
    on with the same ones, and every process draws the same on a gathered batch.

    boundary_weight: how strongly a large boundary is held down (the paper's nu).

    >>> criterion = Margin(num_classes=2)
    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.8, 0.6]])
    >>> bool(criterion(x, torch.tensor([0, 0, 1])) > 0)
    True
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
        num_classes = checks.integer("num_classes", num_classes, at_least=1)
        self.margin = checks.number("margin", margin)
        self.boundary_weight = checks.number("boundary_weight", boundary_weight, at_least=0)
        self.cutoff = checks.positive("cutoff", cutoff)
        self.nonzero_cutoff = checks.positive("nonzero_cutoff", nonzero_cutoff)
        self.rng = StepGenerator(seed)
        boundary = float(checks.number("boundary", boundary))
        self.boundary = nn.Parameter(torch.full((num_classes,), boundary))

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        labels = checks.labels(embeddings, labels, len(self.boundary))
        x = unit(upcast_half(embeddings))
        triplets, counts = drawn_triplets(
            x, ClassIndex(labels), self.rng(x.device), self.cutoff, self.nonzero_cutoff
        )
        boundary = self.boundary.to(x.dtype).index_select(0, labels)  # (batch,)
        own = boundary.index_select(0, triplets[:, 0])  # (T,)
        loss = _loss(x, triplets, own, self.margin, counts)
        penalty: Tensor = self.boundary_weight * boundary.mean()
        return loss + penalty

    def extra_repr(self) -> str:
        return options_repr(self, "margin", "boundary_weight", "cutoff", "nonzero_cutoff")
