"""NCM: the log probability of a sample's class by its distance to the class means.

    L = mean_i -log( exp(-||x_i - m_{y_i}||^2) / sum_c exp(-||x_i - m_c||^2) )

m_c is the mean of class c. The function differentiates by the means as well.

Mensink et al., Distance-based image classification: generalizing to new classes at near-zero cost,
PAMI 2013; Magnet paper Eq. 9. There x = W z and m_c = W times the mean of class c's raw inputs z:
fixed, which only a linear map can use. Deviation: the module's means follow the embeddings of a net
as centers do (`kinspace.losses.class_centers`), are no part of the gradient, and a class not seen
yet is left out of the sum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.samples import Samples, takes_labels, takes_samples
from kinspace._core.tensor_ops import REDUCTIONS, log1p_sum_exp, reduce
from kinspace._core.vectors import squared_distances
from kinspace.losses.class_centers import ClassCenters

__all__ = ["NCM", "ncm_loss"]


@takes_samples
@takes_options(reduction=checks.one_of(REDUCTIONS))
def ncm_loss(
    embeddings: Tensor,
    labels: Tensor,
    means: Tensor,
    *,
    reduction: str = "mean",
    **samples: Unpack[Samples],
) -> Tensor:
    """NCM loss (module docstring); means has one row a class.

    At squared distances 1 and 4 from the means: log(1 + e^-3).

    >>> ncm_loss(torch.tensor([[1.0]]), torch.tensor([0]), torch.tensor([[0.0], [3.0]]))
    tensor(0.0486)
    """
    means = checks.matching_rows("means", means, embeddings)
    labels = checks.labels(embeddings, labels, len(means))
    known = torch.ones(len(means), dtype=torch.bool, device=labels.device)
    return _loss(embeddings, labels, means, known, reduction=reduction)


@takes_samples
def _loss(
    embeddings: Tensor,
    labels: Tensor,
    means: Tensor,
    known: Tensor,
    *,
    reduction: str,
    **samples: Unpack[Samples],
) -> Tensor:
    """NCM over the known classes, (classes,)."""
    squares = squared_distances(embeddings, means)  # (batch, classes)
    own = squares.gather(1, labels[:, None])
    others = known.expand(len(labels), -1).scatter(1, labels[:, None], False)
    # log(1 + the odds of the other classes) keeps its digits where these are small
    return reduce(log1p_sum_exp(own - squares, others), reduction)


class NCM(nn.Module):
    """`ncm_loss` with its class means, kept as the buffer `centers` and moved in training.

    >>> criterion = NCM(num_classes=3, dim=1)
    >>> criterion(torch.tensor([[0.0], [3.0]]), torch.tensor([0, 1]))  # log(1 + e^-9), each
    tensor(0.0001)
    """

    __call__: Callable[..., Tensor]
    extra_repr = options_repr

    def __init__(
        self, num_classes: int, dim: int, *, rate: float = 0.5, reduction: str = "mean"
    ) -> None:
        super().__init__()
        keep_options(self, ncm_loss, reduction=reduction)
        self.class_centers = ClassCenters(num_classes, dim, rate=rate)

    @property
    def centers(self) -> Tensor:
        """The means as they stand, (classes, dim)."""
        return self.class_centers.centers

    @takes_labels
    def forward(self, embeddings: Tensor, labels: Tensor, **samples: Unpack[Samples]) -> Tensor:
        means = self.class_centers(embeddings, labels)
        known = self.class_centers.known(labels.long())
        return _loss(embeddings, labels.long(), means, known, **kept_options(self), **samples)
