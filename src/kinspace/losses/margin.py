"""Margin loss: distances on the right side of a boundary, by a margin, for given triplets.

    L = sum_{(a, p, n)} ( max(0, D_ap - b + margin) + max(0, b - D_an + margin) ) / max(1, active)

D is the plain distance, b the boundary, active the number of terms above 0. The module draws the
negatives by distance-weighted sampling and learns one boundary a class.

Wu et al., Sampling matters in deep embedding learning, ICCV 2017, Eq. 5-6.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.distances import DISTANCES, listed_distances
from kinspace._core.options import keep_options, options_repr, takes_options
from kinspace._core.references import checked_tuples, chosen_pairs, compared, given_pairs
from kinspace._core.rng import StepGenerator
from kinspace._core.samples import Chosen, anchor_weights, takes_weights
from kinspace._core.tensor_ops import full_precision, reduce_hinges, upcast_half
from kinspace._core.vectors import unit
from kinspace.miners.distance_weighted import drawn_triplets

__all__ = ["Margin", "margin_loss"]


@full_precision
@takes_options(margin=checks.number, distance=checks.one_of(DISTANCES))
def margin_loss(
    embeddings: Tensor,
    triplets: Tensor,
    *,
    margin: float = 0.2,
    boundary: float | Tensor = 1.2,
    distance: str = "euclidean",
    reference: Tensor | None = None,
    weights: Tensor | None = None,
) -> Tensor:
    """Margin loss (module docstring) on triplets (T, 3) of indices: anchor, positive, negative.

    boundary: one number, or a tensor with one entry a triplet, which is differentiated.
    reference: what positives and negatives are rows of, where that is not the batch.
    weights: of the anchors, (batch,).

    Positive at 1.5, negative at 1: 0.5 + 0.4 over two active terms.

    >>> x = torch.tensor([[0.0], [1.5], [-1.0]])
    >>> margin_loss(x, torch.tensor([[0, 1, 2]]))
    tensor(0.4500)
    """
    checks.vectors("embeddings", embeddings)
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
    anchor, positive, negative = triplets.unbind(1)
    pull = listed_distances(embeddings, anchor, positive, reference, distance=distance) - boundary
    push = boundary - listed_distances(embeddings, anchor, negative, reference, distance=distance)
    own = None if weights is None else weights[anchor].repeat(2)
    return reduce_hinges(torch.cat([pull, push]) + margin, "mean_active", weights=own)


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

    __call__: Callable[..., Tensor]
    margin: float
    distance: str

    def __init__(  # noqa: PLR0913 (an option each)
        self,
        num_classes: int,
        *,
        margin: float = 0.2,
        boundary: float = 1.2,
        distance: str = "euclidean",
        boundary_weight: float = 0.0,
        cutoff: float = 0.5,
        nonzero_cutoff: float = 1.4,
        seed: int = 0,
    ) -> None:
        super().__init__()
        num_classes = checks.integer("num_classes", num_classes, at_least=1)
        keep_options(self, margin_loss, margin=margin, distance=distance)
        self.boundary_weight = checks.number("boundary_weight", boundary_weight, at_least=0)
        self.cutoff = checks.positive("cutoff", cutoff)
        self.nonzero_cutoff = checks.positive("nonzero_cutoff", nonzero_cutoff)
        self.rng = StepGenerator(seed)
        start = torch.as_tensor(checks.number("boundary", boundary)).detach()
        self.boundary = nn.Parameter(torch.full((num_classes,), float(start)))

    @takes_weights
    def forward(self, embeddings: Tensor, labels: Tensor, **inputs: Unpack[Chosen]) -> Tensor:
        checks.labels(embeddings, labels, len(self.boundary))
        x = upcast_half(embeddings)
        given = inputs.get("reference"), inputs.get("reference_labels")
        reference, index = compared(x, labels, *given, inputs.get("includes_batch", False))
        x, other = unit(x), None if reference is None else unit(reference)
        boundary = self.boundary.to(x.dtype).index_select(0, index.labels)  # (batch,)
        penalty: Tensor = self.boundary_weight * boundary.mean()
        pairs, counts = given_pairs(inputs.get("pairs"), inputs.get("triplets"), index), None
        if pairs is None:
            triplets, counts = drawn_triplets(
                x, index, self.rng(x.device), self.cutoff, self.nonzero_cutoff, other
            )
            pairs = torch.cat([triplets[:, :2], triplets[:, ::2]])
            counts = counts.repeat(2)
        first, second, same = chosen_pairs(pairs, index)
        beyond = listed_distances(x, first, second, other, distance=self.distance)
        beyond = beyond - boundary.index_select(0, first)
        beyond = torch.where(same, beyond, -beyond) + self.margin  # (pairs,)
        weights = anchor_weights(inputs)
        own = None if weights is None else weights[first]
        return reduce_hinges(beyond, "mean_active", used=counts, weights=own) + penalty

    def extra_repr(self) -> str:
        return options_repr(
            self, "margin", "distance", "boundary_weight", "cutoff", "nonzero_cutoff"
        )
