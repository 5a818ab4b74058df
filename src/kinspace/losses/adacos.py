"""AdaCos: a softmax over scaled cosines that chooses its scale from the batch.

    s' = log(B) / cos(min(pi/4, median_i t_i)),   B = mean_i sum_{c != y_i} exp(s cos t_ic)
    L  = mean_i -log softmax(s' cos t_i)_{y_i}

t_ic is the angle of x_i and the weight of class c, t_i that of its own class; s is the scale of the
step before, at first sqrt 2 log(C - 1). The scale is a constant of the gradient. As the samples
come near their weights it falls, and the loss keeps its slope where the probabilities change. For
few classes, where log(B) may be 0 or less, it stays at least 1e-3.

Zhang et al., AdaCos: adaptively scaling cosine logits for effectively learning deep face
representations, CVPR 2019, Eq. 13-15.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional

from kinspace._core import checks
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.samples import Samples, anchor_weights, takes_labels, takes_samples
from kinspace._core.tensor_ops import REDUCTIONS, full_precision, log_sum_exp, reduce
from kinspace._core.vectors import cosines
from kinspace.losses.proxies import new_proxies

__all__ = ["AdaCos", "adacos_loss", "next_scale"]


@takes_samples
@takes_options(reduction=checks.one_of(REDUCTIONS))
def adacos_loss(
    embeddings: Tensor,
    labels: Tensor,
    weight: Tensor,
    scale: Tensor,
    *,
    reduction: str = "mean",
    **samples: Unpack[Samples],
) -> Tensor:
    """AdaCos loss (module docstring); weight has one row a class, scale is that of the step before.

    All angles are 0 to the own and pi/2 to the other two weights: B = 2 and s' = log 2 / cos 0.

    >>> adacos_loss(torch.eye(3), torch.arange(3), torch.eye(3), torch.tensor(1.0))
    tensor(0.6931)
    """
    return reduce(_terms_and_scale(embeddings, labels, weight, scale)[0], reduction)


@full_precision
def _terms_and_scale(
    embeddings: Tensor, labels: Tensor, weight: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor]:
    """The terms of the samples, (batch,), and s'."""
    weight = checks.matching_rows("weight", weight, embeddings)
    labels = checks.labels(embeddings, labels, len(weight))
    if not isinstance(scale, Tensor) or scale.ndim:
        raise ValueError(f"scale: expected a 0-d tensor, got {scale!r}")
    cosine = cosines(embeddings, weight)  # (batch, classes)
    moved = next_scale(cosine, labels, scale)
    return functional.cross_entropy(moved * cosine, labels, reduction="none"), moved


@torch.no_grad()
def next_scale(cosine: Tensor, labels: Tensor, scale: Tensor) -> Tensor:
    """s', from cosines (batch, classes) and the scale of the step before."""
    other = functional.one_hot(labels, cosine.shape[1]) == 0
    log_sums = log_sum_exp(scale * cosine, other)  # (batch,)
    log_mean = log_sums.logsumexp(0) - math.log(len(labels))
    own = cosine.gather(1, labels[:, None])[:, 0].clamp(-1, 1)
    angle = own.acos().median().clamp(max=math.pi / 4)
    return (log_mean / angle.cos()).clamp(1e-3, 1e4)


class AdaCos(nn.Module):
    """`adacos_loss` with its weight and its scale, a buffer that moves in training.

    Give the weight to the optimizer too.

    >>> criterion = AdaCos(num_classes=3, dim=2)
    >>> criterion.scale
    tensor(0.9803)
    """

    __call__: Callable[..., Tensor]
    extra_repr = options_repr

    scale: Tensor

    def __init__(self, num_classes: int, dim: int, *, reduction: str = "mean") -> None:
        super().__init__()
        keep_options(self, adacos_loss, reduction=reduction)
        self.weight = new_proxies(num_classes, dim)
        start = math.sqrt(2) * math.log(max(num_classes - 1, 2))
        self.register_buffer("scale", torch.tensor(start))

    @property
    def proxies(self) -> Tensor:
        """One vector a class: the rows of the weight."""
        return self.weight

    @takes_labels
    def forward(self, embeddings: Tensor, labels: Tensor, **samples: Unpack[Samples]) -> Tensor:
        before = self.scale.clone()  # it moves in place
        terms, moved = _terms_and_scale(embeddings, labels, self.weight, before)
        if self.training:
            self.scale.copy_(moved)
        return reduce(terms, **kept_options(self), weights=anchor_weights(samples))
