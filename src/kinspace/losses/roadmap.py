"""ROADMAP: an upper bound of 1 - average precision that keeps its gradient, and calibrated scores.

    L_i = (1 - w) (1 - 1/|P_i| sum_p R_ip / (R_ip + sum_n h(s_in - s_ip)))
          + w (mean_p max(0, a - s_ip) + mean_n max(0, s_in - b)),   L = mean_i L_i
    h(d) = g(d)                    for d <= 0,   g(d) = 1 / (1 + exp(-d / t))
           g(d) + 1/2              up to a threshold c
           r (d - c) + g(c) + 1/2  beyond

s is the cosine, R_ip the rank of the positive p among the positives of i, a constant of the
gradient. h is nowhere below the step that counts a negative before p, and its slope r stays where
that of a sigmoid is 0: the farther a negative is ahead, the more it costs. Similarities that differ
by less than 1e-6 are equal. The second part holds all positives above a and all negatives below b,
for every sample alike. A sample without a positive has no first part.

Ramzi et al., Robust and decomposable average precision for image retrieval, NeurIPS 2021.
The defaults are those in use with the paper; they are not checked against its print.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.references import related
from kinspace._core.samples import Anchors, Labels, Reference, takes_samples
from kinspace._core.tensor_ops import REDUCTIONS, reduce
from kinspace._core.vectors import cosines

__all__ = ["Roadmap", "roadmap_loss"]

EQUAL = 1e-6  # the rounding of a cosine in float32


@takes_samples
@takes_options(
    temperature=checks.positive,
    threshold=checks.at_least(0),
    slope=checks.at_least(0),
    positive_margin=checks.number,
    negative_margin=checks.number,
    calibration=checks.at_least(0),
    reduction=checks.one_of(REDUCTIONS),
)
def roadmap_loss(  # noqa: PLR0913 (an option each)
    embeddings: Tensor,
    labels: Labels,
    *,
    temperature: float = 0.01,
    threshold: float = 0.05,
    slope: float = 100.0,
    positive_margin: float = 0.9,
    negative_margin: float = 0.6,
    calibration: float = 0.5,
    reduction: str = "mean",
    reference: Tensor | None = None,
    reference_labels: Labels | None = None,
    includes_batch: bool = False,
    **samples: Unpack[Anchors],
) -> Tensor:
    """ROADMAP loss (module docstring); memory of a number for each positive pair and sample.

    The positive of the first sample is behind its negative by 0.2, h = 100 * 0.15 + 0.9933 + 0.5:
    1 - 1/(1 + 16.4933); that of the second by 0.36.

    >>> x = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> roadmap_loss(x, torch.tensor([0, 0, 1]), calibration=0.0, reduction="none")
    tensor([0.9428, 0.9701, 0.0000])
    """
    reference, index = related(embeddings, labels, reference, reference_labels, includes_batch)
    similarity = cosines(embeddings, reference)  # (batch, batch)
    members, positive = index.positives  # (batch, largest class)
    near, negative = similarity.gather(1, members), index.different
    count, others = positive.sum(1).clamp(min=1), negative.sum(1).clamp(min=1)
    ahead = near.detach()[:, None, :] - near.detach()[:, :, None] > EQUAL  # (batch, P, P)
    rank = 1 + (ahead & positive[:, None, :]).sum(2)
    wrong = _step(similarity[:, None, :] - near[:, :, None], temperature, threshold, slope)
    wrong = wrong.masked_fill(~negative[:, None, :], 0.0).sum(2)  # (batch, P)
    precision = (rank / (rank + wrong)).masked_fill(~positive, 0.0).sum(1) / count
    missed = (1 - precision).masked_fill(~positive.any(1), 0.0)
    pull = (positive_margin - near).relu().masked_fill(~positive, 0.0).sum(1) / count
    push = (similarity - negative_margin).relu().masked_fill(~negative, 0.0).sum(1) / others
    return reduce((1 - calibration) * missed + calibration * (pull + push), reduction)


def _step(gap: Tensor, temperature: float, threshold: float, slope: float) -> Tensor:
    """h: at least 1 where a gap is above 0, and rising."""
    low = (gap / temperature).sigmoid() + 0.5 * (gap > EQUAL)
    top = 0.5 + (gap.new_ones(()) * threshold / temperature).sigmoid()
    return torch.where(gap > threshold + EQUAL, slope * (gap - threshold) + top, low)


class Roadmap(nn.Module):
    """`roadmap_loss` as a module.

    >>> Roadmap(calibration=0.25).calibration
    0.25
    """

    __call__: Callable[..., Tensor]
    extra_repr = options_repr

    def __init__(
        self,
        *,
        temperature: float = 0.01,
        threshold: float = 0.05,
        slope: float = 100.0,
        positive_margin: float = 0.9,
        negative_margin: float = 0.6,
        calibration: float = 0.5,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        keep_options(
            self, roadmap_loss, temperature=temperature, threshold=threshold, slope=slope,
            positive_margin=positive_margin, negative_margin=negative_margin,
            calibration=calibration, reduction=reduction,
        )  # fmt: skip

    def forward(self, embeddings: Tensor, labels: Labels, **inputs: Unpack[Reference]) -> Tensor:
        return roadmap_loss(embeddings, labels, **kept_options(self), **inputs)
