"""NCM: the log chance of a sample's class by its distance to the class means.

    L = mean_i -log( exp(-||x_i - m_{y_i}||^2) / sum_c exp(-||x_i - m_c||^2) )

m_c is the mean of class c. The function differentiates by the means as well.

Mensink et al., Distance-based image classification: generalizing to new classes at near-zero cost,
PAMI 2013; Magnet paper Eq. 9. There x = W z and m_c = W times the mean of class c's raw inputs z:
fixed, which only a linear map can use. Where we deviate: the module's means follow the embeddings
of a net as centers do (`kinspace.losses.centers`), are no part of the gradient, and a class not
seen yet is left out of the sum.
"""

from __future__ import annotations

from torch import Tensor, nn

from kinspace import checks
from kinspace.distances import squared_distances
from kinspace.losses.centers import follow_all, register_centers
from kinspace.numerics import full_precision, log1p_sum_exp

__all__ = ["NCM", "ncm_loss"]


@full_precision
def ncm_loss(embeddings: Tensor, labels: Tensor, means: Tensor) -> Tensor:
    """NCM loss (module docstring); means has one row a class.

    At squared distances 1 and 4 from the means: log(1 + e^-3).

    >>> import torch
    >>> ncm_loss(torch.tensor([[1.0]]), torch.tensor([0]), torch.tensor([[0.0], [3.0]]))
    tensor(0.0486)
    """
    means = checks.matching_rows("means", means, embeddings)
    labels = checks.with_labels(embeddings, labels, len(means))
    return _loss(embeddings, labels, means)


@full_precision
def _loss(embeddings: Tensor, labels: Tensor, means: Tensor, known: Tensor | None = None) -> Tensor:
    squares = squared_distances(embeddings, means)  # (batch, classes)
    column = labels[:, None]
    # log(1 + the odds of the other classes) keeps its digits where these are small
    return log1p_sum_exp(squares.gather(1, column) - squares, known, without=column).mean()


class NCM(nn.Module):
    """`ncm_loss` with its class means, kept as the buffer `centers` and moved in training.

    >>> import torch
    >>> criterion = NCM(num_classes=3, dim=1)
    >>> criterion(torch.tensor([[0.0], [3.0]]), torch.tensor([0, 1]))  # log(1 + e^-9), each
    tensor(0.0001)
    """

    centers: Tensor
    seen: Tensor

    def __init__(self, num_classes: int, dim: int, *, rate: float = 0.5) -> None:
        super().__init__()
        self.rate = checks.finite("rate", rate)
        register_centers(self, num_classes, dim)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        labels, means, known = follow_all(self, embeddings, labels)
        if embeddings.dtype.itemsize > 2:
            means = means.to(embeddings.dtype)
        return _loss(embeddings, labels, means, known)

    def extra_repr(self) -> str:
        return f"rate={self.rate}"
