"""FastAP: average precision from a histogram of each sample's distances.

    L    = mean_i (1 - AP_i),   AP_i = 1/|P_i| sum_j H+_j h+_j / H_j

h+ and h are the histograms of the squared distances of unit vectors, 0 to 4, from i to its
positives and to all others, on nodes 4 j / bins; each distance is shared between its two
neighboring nodes in proportion. H+ and H are their cumulative sums. A sample without a positive has
term 0 and still counts in the mean.

Cakir et al., Deep metric learning to rank, CVPR 2019, Eq. 8-10.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.references import related
from kinspace._core.samples import Anchors, Labels, Reference, takes_samples
from kinspace._core.tensor_ops import REDUCTIONS, reduce
from kinspace._core.vectors import cosines, fill_diagonal

__all__ = ["FastAP", "fast_ap_loss"]


@takes_samples
@takes_options(bins=checks.whole(1), reduction=checks.one_of(REDUCTIONS))
def fast_ap_loss(
    embeddings: Tensor,
    labels: Labels,
    *,
    bins: int = 10,
    reduction: str = "mean",
    reference: Tensor | None = None,
    reference_labels: Labels | None = None,
    includes_batch: bool = False,
    **samples: Unpack[Anchors],
) -> Tensor:
    """FastAP loss (module docstring).

    The positive of the first sample is at squared distance 2, its negative at 0, both on nodes:
    AP = 1/2. That of the second is at 2 like the negative: AP = 1/2.

    >>> import torch
    >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    >>> fast_ap_loss(x, torch.tensor([0, 0, 1]), reduction="none")
    tensor([0.5000, 0.5000, 0.0000])
    """
    reference, index = related(embeddings, labels, reference, reference_labels, includes_batch)
    similarity = cosines(embeddings, reference)
    places = (1 - similarity) * (bins / 2)  # (batch, batch), in units of nodes
    node = places.detach().floor().clamp(0, bins - 1)
    share = places - node
    # two histograms side by side in one row a sample: of the positives, then of the negatives
    slot = node.long() + (bins + 1) * index.different
    if index.excludes_itself:
        slot = fill_diagonal(slot, 2 * bins + 2)  # a slot apart
    counts = places.new_zeros(len(places), 2 * bins + 4)
    counts = counts.scatter_add(1, slot, 1 - share).scatter_add(1, slot + 1, share)
    positive, negative = counts[:, : bins + 1], counts[:, bins + 1 : 2 * bins + 2]
    below = (positive + negative).cumsum(1)  # H, (batch, nodes)
    precision = positive * positive.cumsum(1) / below.masked_fill(below <= 0, 1.0)
    count = index.sizes - int(index.excludes_itself)
    terms = 1 - precision.sum(1) / count.clamp(min=1)
    return reduce(terms.masked_fill(count == 0, 0.0), reduction)


class FastAP(nn.Module):
    """`fast_ap_loss` as a module.

    >>> FastAP()
    FastAP(bins=10, reduction='mean')
    """

    __call__: Callable[..., Tensor]
    extra_repr = options_repr

    def __init__(self, *, bins: int = 10, reduction: str = "mean") -> None:
        super().__init__()
        keep_options(self, fast_ap_loss, bins=bins, reduction=reduction)

    def forward(self, embeddings: Tensor, labels: Labels, **inputs: Unpack[Reference]) -> Tensor:
        return fast_ap_loss(embeddings, labels, **kept_options(self), **inputs)
