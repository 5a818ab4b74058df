"""SoftTriple: a softmax over classes of several centers each, weighted by how near they are.

    S_ic = sum_k q_k x_i . w_ck,   q = softmax_k(x_i . w_ck / gamma)
    L    = mean_i -log( exp(l (S_iy - d)) / (exp(l (S_iy - d)) + sum_{c != y_i} exp(l S_ic)) )

x and w are unit vectors, y the own class, l the scale, d the margin. The module adds, where
`merge_weight` is above 0, the regularizer that draws centers of a class together which it has no
use for,

    R = merge_weight / (C K (K - 1)) sum_c sum_{s < t} sqrt(2 - 2 w_cs . w_ct)

Qian et al., SoftTriple loss: deep metric learning without triplet sampling, ICCV 2019, Eq. 6-8.
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
from kinspace._core.tensor_ops import REDUCTIONS, upcast_half
from kinspace._core.vectors import norms, unit
from kinspace.losses.proxies import new_centers

__all__ = ["SoftTriple", "soft_triple_loss"]


@takes_samples
@takes_options(
    scale=checks.positive,
    gamma=checks.positive,
    margin=checks.number,
    reduction=checks.one_of(REDUCTIONS),
)
def soft_triple_loss(
    embeddings: Tensor,
    labels: Tensor,
    centers: Tensor,
    *,
    scale: float = 20.0,
    gamma: float = 0.1,
    margin: float = 0.01,
    reduction: str = "mean",
    **samples: Unpack[Samples],
) -> Tensor:
    """SoftTriple loss (module docstring) without its regularizer; centers are (classes, K, dim).

    With one center a class S is the cosine: log(1 + exp(0 - (1 - 0.01))).

    >>> soft_triple_loss(torch.eye(2), torch.tensor([0, 1]), torch.eye(2)[:, None], scale=1.0)
    tensor(0.3160)
    """
    centers = checks.matching_centers("centers", centers, embeddings)
    labels = checks.labels(embeddings, labels, len(centers))
    cosines = unit(embeddings) @ unit(centers).flatten(0, 1).T
    cosines = cosines.unflatten(1, centers.shape[:2])  # (batch, classes, K)
    similarity = ((cosines / gamma).softmax(2) * cosines).sum(2)  # (batch, classes)
    own = functional.one_hot(labels, len(centers)).to(similarity.dtype)
    logits = scale * (similarity - margin * own)
    return functional.cross_entropy(logits, labels, reduction=reduction)


class SoftTriple(nn.Module):
    """`soft_triple_loss` with its centers. Give them to the optimizer too.

    >>> [tuple(p.shape) for p in SoftTriple(num_classes=3, dim=2).parameters()]
    [(3, 10, 2)]
    """

    __call__: Callable[..., Tensor]

    def __init__(  # noqa: PLR0913 (an option each)
        self,
        num_classes: int,
        dim: int,
        *,
        centers: int = 10,
        scale: float = 20.0,
        gamma: float = 0.1,
        margin: float = 0.01,
        merge_weight: float = 0.0,
        reduction: str = "mean",
    ) -> None:
        super().__init__()
        keep_options(
            self, soft_triple_loss, scale=scale, gamma=gamma, margin=margin, reduction=reduction
        )
        self.merge_weight = checks.number("merge_weight", merge_weight, at_least=0)
        self.centers = new_centers(num_classes, centers, dim)

    def forward(self, embeddings: Tensor, labels: Tensor, **samples: Unpack[Samples]) -> Tensor:
        loss = soft_triple_loss(embeddings, labels, self.centers, **kept_options(self), **samples)
        if not isinstance(self.merge_weight, Tensor) and self.merge_weight == 0:
            return loss
        merge: Tensor = self.merge_weight * self._apart()
        return loss + merge

    def _apart(self) -> Tensor:
        """How far the centers of a class are from each other, R without its weight."""
        classes, count, _ = self.centers.shape
        w = unit(upcast_half(self.centers))
        first, second = torch.triu_indices(count, count, 1, device=w.device)
        distances = norms(w[:, first] - w[:, second])  # sqrt(2 - 2 w_s . w_t)
        return distances.sum() / (classes * max(1, count * (count - 1)))

    def extra_repr(self) -> str:
        return options_repr(self, "scale", "gamma", "margin", "merge_weight", "reduction")
