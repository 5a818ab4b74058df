"""ALMN: N-pair loss around class centers, its margin adapted by generated virtual points.

    L   = mean_i log(1 + sum_{j: y_j != y_i} exp(x_j . c_i - g_i . c_i)) + w/(2N) sum_i ||x_i||^2
    g_i = v_i ||x_i|| / ||v_i||,   v_i = x_i + M_i (x_i - c_i)
    M_i = beta k_i ||x_i|| / ||x_i - c_i||,   k_i = 2 sin(max(nearest_i - own_i, 0) / 2)

c_i is the center of i's class (a constant: no gradient), own_i the angle between c_i and x_i,
nearest_i the smallest angle between c_i and a sample of another class. The virtual point g_i
(`virtual_points.py`, with the deviations from print) lies as far beyond x_i as the neighborhood
allows; the embeddings are not normalized.

Chen and Deng, ALMN: Deep embedding learning with geometrical virtual point generating, 2018,
Eq. 6-8; beta = 0 is Eq. 3. After the loss the centers move by Eq. 2. A class seen for the first
time starts at its batch mean (the paper does not say).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.class_index import ClassIndex
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.samples import Samples, takes_labels, takes_samples
from kinspace._core.tensor_ops import REDUCTIONS, log1p_sum_exp, reduce
from kinspace.losses.class_centers import ClassCenters
from kinspace.losses.virtual_points import MARGINS, virtual_points

__all__ = ["ALMN", "almn_loss", "center_n_pair_terms"]


@takes_samples
@takes_options(
    beta=checks.at_least(0),
    norm_weight=checks.at_least(0),
    margin=checks.one_of(MARGINS),
    reduction=checks.one_of(REDUCTIONS),
)
def almn_loss(
    embeddings: Tensor,
    labels: Tensor,
    centers: Tensor,
    *,
    beta: float = 3.0,
    norm_weight: float = 5e-4,
    margin: str = "clipped",
    reduction: str = "mean",
    **samples: Unpack[Samples],
) -> Tensor:
    """ALMN loss (module docstring) around given centers, one row a class.

    With beta 0 and these centers both logits of each sample are 1 and 0: log(1 + 1/e).

    >>> import torch
    >>> almn_loss(torch.eye(2), torch.tensor([0, 1]), torch.eye(2), beta=0.0, norm_weight=0.0)
    tensor(0.3133)
    """
    centers = checks.matching_rows("centers", centers, embeddings)
    labels = checks.labels(embeddings, labels, len(centers))
    own = centers.detach()[labels]
    points = virtual_points(embeddings, labels, centers, beta=beta, margin=margin)
    positive = (points * own).sum(1)
    return reduce(center_n_pair_terms(embeddings, labels, own, positive, norm_weight), reduction)


def center_n_pair_terms(
    x: Tensor, labels: Tensor, own: Tensor, positive: Tensor, norm_weight: float
) -> Tensor:
    """log(1 + sum_{j: y_j != y_i} exp(x_j . c_i - p_i)) + w/2 ||x_i||^2 for each sample i.

    own: the centers c_i of the samples' classes, (batch, dim); positive: the p_i, (batch,).
    """
    logits = own @ x.T - positive[:, None]  # (batch, batch)
    terms = log1p_sum_exp(logits, ClassIndex(labels).different)
    return terms + norm_weight / 2 * x.square().sum(1)


class ALMN(nn.Module):
    """ALMN with its class centers, which are buffers.

    In training each call uses the centers as they stand, then moves them by Eq. 2. In evaluation
    they stay.

    >>> import torch
    >>> criterion = ALMN(num_classes=2, dim=3)
    >>> float(criterion(torch.eye(3)[:2], torch.tensor([0, 1]))) > 0
    True
    """

    __call__: Callable[..., Tensor]
    extra_repr = options_repr

    def __init__(
        self,
        num_classes: int,
        dim: int,
        *,
        beta: float = 3.0,
        norm_weight: float = 5e-4,
        margin: str = "clipped",
        rate: float = 0.5,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        keep_options(
            self, almn_loss, beta=beta, norm_weight=norm_weight, margin=margin, reduction=reduction
        )
        self.class_centers = ClassCenters(num_classes, dim, rate=rate)

    @property
    def centers(self) -> Tensor:
        """The centers as they stand, (classes, dim)."""
        return self.class_centers.centers

    @takes_labels
    def forward(self, embeddings: Tensor, labels: Tensor, **samples: Unpack[Samples]) -> Tensor:
        centers = self.class_centers(embeddings, labels)
        return almn_loss(embeddings, labels, centers, **kept_options(self), **samples)
