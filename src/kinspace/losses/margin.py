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
from kinspace._core.references import (
    checked_tuples,
    chosen_pairs,
    compared,
    given_triplets,
)
from kinspace._core.rng import StepGenerator
from kinspace._core.tensor_ops import full_precision, upcast_half
from kinspace._core.vectors import paired_distances, unit
from kinspace.miners.distance_weighted import drawn_triplets

__all__ = ["Margin", "margin_loss"]


@full_precision
def margin_loss(
    embeddings: Tensor,
    triplets: Tensor,
    *,
    margin: float = 0.2,
    boundary: float | Tensor = 1.2,
    reference: Tensor | None = None,
) -> Tensor:
    """Margin loss (module docstring) on triplets (T, 3) of indices: anchor, positive, negative.

    boundary: one number, or a tensor with one entry a triplet, which is differentiated.
    reference: what positives and negatives are rows of, where that is not the batch.

    Positive at 1.5, negative at 1: 0.5 + 0.4 over two active terms.

    >>> x = torch.tensor([[0.0], [1.5], [-1.0]])
    >>> margin_loss(x, torch.tensor([[0, 1, 2]]))
    tensor(0.4500)
    """
    checks.vectors("embeddings", embeddings)
    checks.number("margin", margin)
    if reference is not None:
        reference = checks.matching_rows("reference", reference, embeddings)
    sizes = len(embeddings), len(embeddings if reference is None else reference)
    triplets = checked_tuples("triplets", triplets, 3, sizes)
    if not isinstance(boundary, Tensor) or not boundary.ndim:
        checks.number("boundary", boundary)
    elif boundary.shape != triplets.shape[:1]:
        raise ValueError(
            f"boundary: expected a number or shape ({len(triplets)},), one entry a triplet, "
            f"got {tuple(boundary.shape)}"
        )
    return _loss(embeddings, triplets, boundary, margin, reference=reference)


@full_precision
def _loss(
    x: Tensor,
    triplets: Tensor,
    boundary: float | Tensor,
    margin: float,
    counts: Tensor | None = None,
    reference: Tensor | None = None,
) -> Tensor:
    """The loss on the triplets that count, (T,); on all of them where that is left out."""
    anchor, positive, negative = triplets.unbind(1)
    pull = (paired_distances(x, anchor, positive, reference) - boundary + margin).relu()
    push = (boundary - paired_distances(x, anchor, negative, reference) + margin).relu()
    if counts is not None:
        pull, push = pull.masked_fill(~counts, 0.0), push.masked_fill(~counts, 0.0)
    active = (pull > 0).sum() + (push > 0).sum()
    return (pull + push).sum() / active.clamp(min=1)


@full_precision
def _loss_of_pairs(
    x: Tensor,
    reference: Tensor | None,
    pairs: tuple[Tensor, Tensor, Tensor],
    boundary: Tensor,
    margin: float,
) -> Tensor:
    """The same on pairs, each a pull or a push."""
    first, second, same = pairs
    beyond = paired_distances(x, first, second, reference) - boundary
    hinges = (torch.where(same, beyond, -beyond) + margin).relu()  # (P,)
    return hinges.sum() / (hinges > 0).sum().clamp(min=1)


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

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        *,
        pairs: Tensor | None = None,
        triplets: Tensor | None = None,
        reference: Tensor | None = None,
        reference_labels: Tensor | None = None,
        includes_batch: bool = False,
    ) -> Tensor:
        checks.labels(embeddings, labels, len(self.boundary))
        x = upcast_half(embeddings)
        reference, index = compared(x, labels, reference, reference_labels, includes_batch)
        x, other = unit(x), None if reference is None else unit(reference)
        boundary = self.boundary.to(x.dtype).index_select(0, index.labels)  # (batch,)
        penalty: Tensor = self.boundary_weight * boundary.mean()
        if pairs is not None and triplets is None:
            chosen = chosen_pairs(pairs, index)
            own = boundary.index_select(0, chosen[0])  # (P,)
            return _loss_of_pairs(x, other, chosen, own, self.margin) + penalty
        triplets = given_triplets(pairs, triplets, index)
        counts = None
        if triplets is None:
            rng = self.rng(x.device)
            triplets, counts = drawn_triplets(
                x, index, rng, self.cutoff, self.nonzero_cutoff, other
            )
        own = boundary.index_select(0, triplets[:, 0])  # (T,)
        return _loss(x, triplets, own, self.margin, counts, other) + penalty

    def extra_repr(self) -> str:
        return options_repr(self, "margin", "boundary_weight", "cutoff", "nonzero_cutoff")
