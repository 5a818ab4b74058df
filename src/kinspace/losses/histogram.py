"""Histogram loss: the probability that a random negative pair is more similar than a positive one.

    L = sum_r h-_r sum_{q <= r} h+_q

h+ and h- are the histograms of the cosines of same and different pairs on nodes t_r = -1 +
2r/(bins-1), each cosine shared between its two neighboring nodes in proportion (which makes them
differentiable). No same or no different pair: 0.

Ustinova and Lempitsky, Learning deep embeddings with histogram loss, NIPS 2016, Eq. 2-6.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.references import related
from kinspace._core.samples import Anchors, Labels, Reference, takes_samples
from kinspace._core.vectors import cosines, fill_diagonal

__all__ = ["Histogram", "histogram_loss"]


@takes_samples
@takes_options(bins=checks.whole(2))
def histogram_loss(
    embeddings: Tensor,
    labels: Labels,
    *,
    bins: int = 101,
    reference: Tensor | None = None,
    reference_labels: Labels | None = None,
    includes_batch: bool = False,
    **samples: Unpack[Anchors],
) -> Tensor:
    """Histogram loss (module docstring).

    The positives have cosines 0 and 0.6, the negatives 0.8, 0, 0.6 and 1, all on nodes: of the
    eight comparisons one is right.

    >>> import torch
    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6], [0.0, 1.0]])
    >>> histogram_loss(x, torch.tensor([0, 0, 1, 1]), bins=11)
    tensor(0.8750)
    """
    reference, index = related(embeddings, labels, reference, reference_labels, includes_batch)
    places = (cosines(embeddings, reference) + 1) * (
        (bins - 1) / 2
    )  # (batch, batch), in units of nodes
    same = fill_diagonal(index.same, False) if index.excludes_itself else index.same
    # Two histograms side by side in one row a sample: nodes of same pairs, then of different ones.
    # Summing them up row by row keeps the adds of one row from waiting for another's.
    node = places.detach().floor().clamp(0, bins - 2)
    share = places - node
    slot = node.long() + bins * (~same)
    if index.excludes_itself:
        slot = fill_diagonal(slot, 2 * bins)  # a slot apart
    counts = places.new_zeros(len(places), 2 * bins + 2)
    counts = counts.scatter_add(1, slot, 1 - share).scatter_add(1, slot + 1, share).sum(0)
    positive, negative = counts[:bins], counts[bins : 2 * bins]
    pairs = same.sum()
    others = index.comparisons - pairs
    overlap = (negative * positive.cumsum(0)).sum()
    # One division by each count: their product overflows no float, but may an int.
    return overlap / pairs.clamp(min=1) / others.clamp(min=1)


class Histogram(nn.Module):
    """`histogram_loss` as a module.

    >>> Histogram()
    Histogram(bins=101)
    """

    __call__: Callable[..., Tensor]
    extra_repr = options_repr

    def __init__(self, *, bins: int = 101) -> None:
        super().__init__()
        keep_options(self, histogram_loss, bins=bins)

    def forward(self, embeddings: Tensor, labels: Labels, **inputs: Unpack[Reference]) -> Tensor:
        return histogram_loss(embeddings, labels, **kept_options(self), **inputs)
