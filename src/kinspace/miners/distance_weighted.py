"""Distance-weighted sampling of negatives on the unit sphere.

    log w(D) = -( (d - 2) log D + (d - 3)/2 log(1 - D^2/4) ),   D = max(distance, cutoff)

Pairs of random points on the sphere in d dimensions are nearly all at distance sqrt 2; weighting by
the inverse of their density draws negatives evenly over distances. Distances of nonzero_cutoff and
more get weight 0 (their gradient is small); if nothing is left, all negatives are drawn evenly.

Wu et al., Sampling matters in deep embedding learning, ICCV 2017, Eq. 3-4.
"""

from __future__ import annotations

import math
from typing import Unpack

import torch
from torch import Tensor

from kinspace._core import checks
from kinspace._core.class_index import ClassIndex
from kinspace._core.references import compared
from kinspace._core.samples import Labeled, Labels, takes_labels
from kinspace._core.tensor_ops import full_precision
from kinspace._core.vectors import norms, unit

__all__ = ["distance_weighted", "distance_weights", "drawn_triplets"]


@torch.no_grad()
@full_precision
def distance_weights(
    embeddings: Tensor,
    labels: Tensor,
    *,
    cutoff: float = 0.5,
    nonzero_cutoff: float = 1.4,
    reference: Tensor | None = None,
    reference_labels: Tensor | None = None,
    includes_batch: bool = False,
) -> Tensor:
    """Probability of each sample as the negative of each anchor, (batch, batch).

    The embeddings are scaled to length 1 first. A row with no negative is all 0.

    >>> x = torch.tensor([[1.0, 0.0, 0.0], [1.0, 0.1, 0.0], [0.8, 0.6, 0.0], [0.6, 0.8, 0.0]])
    >>> distance_weights(x, torch.tensor([0, 0, 1, 1]))[0]
    tensor([0.0000, 0.0000, 0.5858, 0.4142])
    """
    reference, index = compared(embeddings, labels, reference, reference_labels, includes_batch)
    checks.positive("cutoff", cutoff)
    checks.positive("nonzero_cutoff", nonzero_cutoff)
    other = None if reference is None else unit(reference)
    return _probabilities(unit(embeddings), index, cutoff, nonzero_cutoff, other)


@torch.no_grad()
@takes_labels
@full_precision
def distance_weighted(  # noqa: PLR0913 (an option each)
    embeddings: Tensor,
    labels: Labels,
    *,
    generator: torch.Generator | None = None,
    cutoff: float = 0.5,
    nonzero_cutoff: float = 1.4,
    reference: Tensor | None = None,
    reference_labels: Labels | None = None,
    includes_batch: bool = False,
    **labeled: Unpack[Labeled],
) -> Tensor:
    """A triplet (anchor, positive, drawn negative) for each ordered positive pair, (T, 3).

    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.8, 0.6]])
    >>> distance_weighted(x, torch.tensor([0, 0, 1]), generator=torch.Generator().manual_seed(0))
    tensor([[0, 1, 2],
            [1, 0, 2]])
    """
    reference, index = compared(embeddings, labels, reference, reference_labels, includes_batch)
    checks.positive("cutoff", cutoff)
    checks.positive("nonzero_cutoff", nonzero_cutoff)
    x, other = unit(embeddings), None if reference is None else unit(reference)
    triplets, used = drawn_triplets(x, index, generator, cutoff, nonzero_cutoff, other)
    return triplets[used]


@torch.no_grad()
@full_precision
def drawn_triplets(
    x: Tensor,
    index: ClassIndex,
    generator: torch.Generator | None,
    cutoff: float,
    nonzero_cutoff: float,
    reference: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The triplets of vectors of length 1, (T, 3), and which of them count."""
    members, positive = index.positives  # (batch, largest class)
    probabilities = _probabilities(x, index, cutoff, nonzero_cutoff, reference)
    negatives = _sample(probabilities, members.shape[1], generator)
    anchors = torch.arange(len(members), device=members.device)[:, None].expand_as(members)
    used = positive & index.different.any(1, keepdim=True)
    *columns, counts = index.listed(used, anchors, members, negatives)
    return torch.stack(columns, 1), counts


def _sample(probabilities: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
    """Columns drawn with the probabilities of each row, (rows, count).

    By inverse cumulative sums: no table of one row a draw, as torch.multinomial would make.
    """
    device = None if generator is None else generator.device
    shape = (len(probabilities), count)
    draws = torch.rand(shape, generator=generator, device=device).to(probabilities)
    steps = probabilities.cumsum(1)
    # kept under the total, which rounding could otherwise reach: no sample lies beyond it
    draws = draws.clamp(max=1 - torch.finfo(torch.float32).eps) * steps[:, -1:]
    return torch.searchsorted(steps, draws, right=True).clamp(max=probabilities.shape[1] - 1)


def _probabilities(
    x: Tensor,
    index: ClassIndex,
    cutoff: float,
    nonzero_cutoff: float,
    reference: Tensor | None = None,
) -> Tensor:
    other = x if reference is None else reference
    dim, lengths = x.shape[1], norms(x)  # 1, or 0 of zeros
    others = lengths if reference is None else norms(other)
    squares = lengths + others.T - 2 * (x @ other.T)  # no distance under the cutoff matters
    # opposite points have 1 - D^2/4 = 0, a log of -inf: they are beyond any useful cutoff
    clipped = squares.clamp(cutoff**2, 4 - 4 * torch.finfo(squares.dtype).eps)
    logs = (2 - dim) / 2 * clipped.log() + (3 - dim) / 2 * (1 - clipped / 4).log()
    # as good as weight 0 beside any other, and equal weights where there is no other
    logs = logs.masked_fill(squares >= nonzero_cutoff**2, torch.finfo(logs.dtype).min)
    alone = ~index.different.any(1, keepdim=True)
    return logs.masked_fill(index.same, -math.inf).softmax(1).masked_fill(alone, 0.0)
