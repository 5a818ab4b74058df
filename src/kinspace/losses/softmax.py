"""Softmax: classification over the training classes, the baseline of every paper here.

    L = mean_i -log softmax(W x_i + b)_{y_i}

and normalized softmax, the same on unit vectors with a scale: logits s cos(x_i, w_c).

Zhai and Wu, Classification is a strong baseline for deep metric learning, BMVC 2019.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional

from kinspace._core import checks
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.samples import Samples, takes_samples
from kinspace._core.tensor_ops import REDUCTIONS
from kinspace._core.vectors import unit
from kinspace.losses.proxies import new_proxies

__all__ = ["NormalizedSoftmax", "Softmax", "normalized_softmax_loss", "softmax_loss"]


@takes_samples
@takes_options(reduction=checks.one_of(REDUCTIONS))
def softmax_loss(
    embeddings: Tensor,
    labels: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    reduction: str = "mean",
    **samples: Unpack[Samples],
) -> Tensor:
    """Cross-entropy of a linear classifier, weight (classes, dim) and bias (classes,).

    >>> softmax_loss(torch.eye(2), torch.tensor([0, 1]), torch.eye(2))
    tensor(0.3133)
    """
    weight = checks.matching_rows("weight", weight, embeddings)
    labels = checks.labels(embeddings, labels, len(weight))
    if bias is not None:
        bias = checks.class_vector("bias", bias, len(weight)).to(embeddings.dtype)
    logits = functional.linear(embeddings, weight, bias)  # (batch, classes)
    return functional.cross_entropy(logits, labels, reduction=reduction)


@takes_samples
@takes_options(scale=checks.positive, reduction=checks.one_of(REDUCTIONS))
def normalized_softmax_loss(
    embeddings: Tensor,
    labels: Tensor,
    weight: Tensor,
    *,
    scale: float = 20.0,
    reduction: str = "mean",
    **samples: Unpack[Samples],
) -> Tensor:
    """Cross-entropy of scaled cosines.

    >>> normalized_softmax_loss(3 * torch.eye(2), torch.tensor([0, 1]), torch.eye(2), scale=1.0)
    tensor(0.3133)
    """
    weight = checks.matching_rows("weight", weight, embeddings)
    labels = checks.labels(embeddings, labels, len(weight))
    logits = scale * unit(embeddings) @ unit(weight).T  # (batch, classes)
    return functional.cross_entropy(logits, labels, reduction=reduction)


class Softmax(nn.Module):
    """`softmax_loss` with its weight and bias.

    >>> [tuple(p.shape) for p in Softmax(num_classes=3, dim=2).parameters()]
    [(3, 2), (3,)]
    """

    __call__: Callable[..., Tensor]
    extra_repr = options_repr

    def __init__(
        self, num_classes: int, dim: int, *, bias: bool = True, reduction: str = "mean"
    ) -> None:
        super().__init__()
        num_classes = checks.integer("num_classes", num_classes, at_least=1)
        # as nn.Linear starts its weight: small logits, whatever the number of classes
        bound = checks.integer("dim", dim, at_least=1) ** -0.5
        keep_options(self, softmax_loss, reduction=reduction)
        self.weight = nn.Parameter(torch.empty(num_classes, dim).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.zeros(num_classes)) if bias else None

    @property
    def proxies(self) -> Tensor:
        """One vector a class: the rows of the weight."""
        return self.weight

    def forward(self, embeddings: Tensor, labels: Tensor, **samples: Unpack[Samples]) -> Tensor:
        return softmax_loss(
            embeddings, labels, self.weight, self.bias, **kept_options(self), **samples
        )


class NormalizedSoftmax(nn.Module):
    """`normalized_softmax_loss` with its weight.

    >>> NormalizedSoftmax(num_classes=3, dim=2, scale=10.0)
    NormalizedSoftmax(scale=10.0, reduction='mean')
    """

    __call__: Callable[..., Tensor]
    extra_repr = options_repr

    def __init__(
        self, num_classes: int, dim: int, *, scale: float = 20.0, reduction: str = "mean"
    ) -> None:
        super().__init__()
        keep_options(self, normalized_softmax_loss, scale=scale, reduction=reduction)
        self.weight = new_proxies(num_classes, dim)

    @property
    def proxies(self) -> Tensor:
        """One vector a class: the rows of the weight."""
        return self.weight

    def forward(self, embeddings: Tensor, labels: Tensor, **samples: Unpack[Samples]) -> Tensor:
        return normalized_softmax_loss(
            embeddings, labels, self.weight, **kept_options(self), **samples
        )
