"""Smooth-AP: the average precision of each sample's ranking, its steps made sigmoids.

    AP_i    = 1/|P_i| sum_{p in P_i} R_ip(P_i) / R_ip(all),   L = mean_i (1 - AP_i)
    R_ip(S) = 1 + sum_{j in S, j != p} g(s_ij - s_ip),   g(d) = 1 / (1 + exp(-d / t))

s is the cosine, t the temperature. R is the rank of p among the positives, and among all samples
but i itself. A sample without a positive has term 0 and still counts in the mean.

Brown et al., Smooth-AP: smoothing the path towards large-scale image retrieval, ECCV 2020, Eq. 6.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.references import Index, related
from kinspace._core.samples import Anchors, Labels, Reference, takes_samples
from kinspace._core.tensor_ops import REDUCTIONS, reduce
from kinspace._core.vectors import cosines, fill_diagonal

__all__ = ["SmoothAP", "smooth_ap_loss"]


@takes_samples
@takes_options(temperature=checks.positive, reduction=checks.one_of(REDUCTIONS))
def smooth_ap_loss(
    embeddings: Tensor,
    labels: Labels,
    *,
    temperature: float = 0.01,
    reduction: str = "mean",
    reference: Tensor | None = None,
    reference_labels: Labels | None = None,
    includes_batch: bool = False,
    **samples: Unpack[Anchors],
) -> Tensor:
    """Smooth-AP loss (module docstring); memory of a number for each positive pair and sample.

    For the first sample the positive is behind the negative by 0.2, that is by one temperature:
    AP = 1 / (1 + 1/(1 + e^-1)). For the second it is behind by 0.36.

    >>> import torch
    >>> x = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> smooth_ap_loss(x, torch.tensor([0, 0, 1]), temperature=0.2, reduction="none")
    tensor([0.4223, 0.4618, 0.0000])
    """
    reference, index = related(embeddings, labels, reference, reference_labels, includes_batch)
    similarity = cosines(embeddings, reference)
    members, positive = index.positives  # (batch, largest class)
    near = similarity.gather(1, members)
    among_positives = soft_ranks(near, near, positive, temperature)
    among_all = soft_ranks(near, similarity, others(index), temperature)
    precision = (among_positives / among_all).masked_fill(~positive, 0.0).sum(1)
    precision = precision / positive.sum(1).clamp(min=1)
    return reduce((1 - precision).masked_fill(~positive.any(1), 0.0), reduction)


def soft_ranks(near: Tensor, similarity: Tensor, counts: Tensor, temperature: float) -> Tensor:
    """The ranks (batch, P) of the similarities `near` among those of each row that count.

    Each of `near` is itself among them.
    """
    above = (similarity[:, None, :] - near[:, :, None]) / temperature  # (batch, P, some)
    steps = above.sigmoid().masked_fill(~counts[:, None, :], 0.0)
    return steps.sum(2) + 0.5  # 1, and less the step at 0 of the entry itself


def others(index: Index) -> Tensor:
    """Mask (batch, batch) of all but the samples themselves."""
    everything = torch.ones_like(index.same)
    return fill_diagonal(everything, False) if index.excludes_itself else everything


class SmoothAP(nn.Module):
    """`smooth_ap_loss` as a module.

    >>> SmoothAP()
    SmoothAP(temperature=0.01, reduction='mean')
    """

    __call__: Callable[..., Tensor]
    extra_repr = options_repr

    def __init__(self, *, temperature: float = 0.01, reduction: str = "mean") -> None:
        super().__init__()
        keep_options(self, smooth_ap_loss, temperature=temperature, reduction=reduction)

    def forward(self, embeddings: Tensor, labels: Labels, **inputs: Unpack[Reference]) -> Tensor:
        return smooth_ap_loss(embeddings, labels, **kept_options(self), **inputs)
