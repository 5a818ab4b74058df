"""GOR: samples of different classes should look like random directions.

    R = M1^2 + max(0, M2 - 1/d)

M1 and M2 are the first and second moment of the inner product over the pairs of different
classes, d the dimension: for random unit vectors they are 0 and 1/d. No such pair: 0. The
embeddings are used as given.

Zhang et al., Learning spread-out local feature descriptors, ICCV 2017, Eq. 5-6.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.class_index import ClassIndex
from kinspace._core.tensor_ops import full_precision

__all__ = ["Orthogonal", "orthogonal"]


@full_precision
def orthogonal(embeddings: Tensor, labels: Tensor) -> Tensor:
    """Global orthogonal regularization (module docstring).

    One pair with inner product 1 in two dimensions: 1 + (1 - 1/2).

    >>> import torch
    >>> orthogonal(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1]))
    tensor(1.5000)
    """
    labels = checks.labels(embeddings, labels)
    different = ClassIndex(labels).different
    products = (embeddings @ embeddings.T).masked_fill(~different, 0)
    count = different.sum()
    first = products.sum() / count.clamp(min=1)
    second = products.square().sum() / count.clamp(min=1)
    excess = (second - 1 / embeddings.shape[1]).relu()
    return first.square() + excess


class Orthogonal(nn.Module):
    """`orthogonal` as a module.

    >>> Orthogonal()
    Orthogonal()
    """

    __call__: Callable[..., Tensor]
    takes = "embeddings"

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return orthogonal(embeddings, labels)
