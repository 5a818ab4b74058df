"""CosFace: a softmax over classes whose own cosine is made smaller by a margin.

    L = mean_i -log( exp(z_i) / (exp(z_i) + sum_{c != y_i} exp(s cos t_ic)) )
    z_i = s (cos t_i - m)

t_ic is the angle of x_i and the weight of class c, t_i that of its own class.

Wang et al., CosFace: large margin cosine loss for deep face recognition, CVPR 2018, Eq. 4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

from torch import Tensor, nn
from torch.nn import functional

from kinspace._core import checks
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.samples import Samples, takes_samples
from kinspace._core.tensor_ops import REDUCTIONS
from kinspace._core.vectors import cosines
from kinspace.losses.proxies import new_proxies

__all__ = ["CosFace", "cosface_loss"]


@takes_samples
@takes_options(scale=checks.positive, margin=checks.number, reduction=checks.one_of(REDUCTIONS))
def cosface_loss(
    embeddings: Tensor,
    labels: Tensor,
    weight: Tensor,
    *,
    scale: float = 64.0,
    margin: float = 0.35,
    reduction: str = "mean",
    **samples: Unpack[Samples],
) -> Tensor:
    """CosFace loss (module docstring); weight has one row a class.

    log(1 + exp(0 - (1 - 0.35))):

    >>> import torch
    >>> cosface_loss(torch.eye(2), torch.tensor([0, 1]), torch.eye(2), scale=1.0)
    tensor(0.4201)
    """
    weight = checks.matching_rows("weight", weight, embeddings)
    labels = checks.labels(embeddings, labels, len(weight))
    cosine = cosines(embeddings, weight)  # (batch, classes)
    own = functional.one_hot(labels, len(weight)).to(cosine.dtype)
    logits = scale * (cosine - margin * own)
    return functional.cross_entropy(logits, labels, reduction=reduction)


class CosFace(nn.Module):
    """`cosface_loss` with its weight. Give it to the optimizer too.

    >>> CosFace(num_classes=3, dim=2)
    CosFace(scale=64.0, margin=0.35, reduction='mean')
    """

    __call__: Callable[..., Tensor]
    extra_repr = options_repr

    def __init__(
        self,
        num_classes: int,
        dim: int,
        *,
        scale: float = 64.0,
        margin: float = 0.35,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        keep_options(self, cosface_loss, scale=scale, margin=margin, reduction=reduction)
        self.weight = new_proxies(num_classes, dim)

    @property
    def proxies(self) -> Tensor:
        """One vector a class: the rows of the weight."""
        return self.weight

    def forward(self, embeddings: Tensor, labels: Tensor, **samples: Unpack[Samples]) -> Tensor:
        return cosface_loss(embeddings, labels, self.weight, **kept_options(self), **samples)
