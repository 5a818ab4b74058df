"""Virtual points: for each sample a harder one of its class, as far out as its neighbors allow.

    g_i = v_i ||x_i|| / ||v_i||,   v_i = x_i + M_i (x_i - c_i)
    M_i = beta k_i ||x_i|| / ||x_i - c_i||,   k_i = 2 sin(max(nearest_i - own_i, 0) / 2)

c_i is the center of i's class (a constant: no gradient), own_i the angle between c_i and x_i,
nearest_i the smallest angle between c_i and a sample of another class. In ALMN they take the place
of the positives. In any loss they can join the batch as samples of their class,

    L = loss(x_1, ..., x_N, g_1, ..., g_N; y, y)

the centers being the proxies of the loss where it has one a class, else class centers that follow
the embeddings as in ALMN.

Chen and Deng, ALMN: Deep embedding learning with geometrical virtual point generating, 2018,
Eq. 6-7; sec. 4: virtual points combine with other losses. It gives no formula for that; that they
join the batch is our choice.

Deviations from print:
- Eq. 6 has sqrt(2 - 2 cos(nearest - own)), which is even: a hard sample (own > nearest) would get
  a strong margin, against the paper's own text. So the angle is clipped at 0. `margin="printed"`
  is the even form.
- The gradient holds the angles constant and differentiates ||x_i|| and ||x_i - c_i|| in M_i. That
  is what Eq. 11 does; its print is garbled and its last term wrong.
- x = c, ||x|| = 0, ||c|| = 0 or no negative: M = 0, so g = x.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.class_index import ClassIndex
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.samples import Anchors, anchor_weights, takes_labels
from kinspace._core.tensor_ops import full_precision
from kinspace._core.vectors import half_angles, norms, unit
from kinspace.losses.class_centers import ClassCenters

__all__ = ["VirtualPoints", "virtual_points"]

MARGINS = ("clipped", "printed")


@full_precision
@takes_options(beta=checks.at_least(0), margin=checks.one_of(MARGINS))
def virtual_points(
    embeddings: Tensor,
    labels: Tensor,
    centers: Tensor,
    *,
    beta: float = 3.0,
    margin: str = "clipped",
) -> Tensor:
    """The virtual points g (Eq. 7), one for each embedding and of its length.

    Any loss may be given them in place of its positives, with any miner.

    Seen from its center at (1, 0) the first sample is 90 degrees from the nearest negative: k =
    sqrt 2, M = 2, v = (1, 3).

    >>> x = torch.tensor([[1.0, 1.0], [-1.0, 1.0]])
    >>> virtual_points(x, torch.tensor([0, 1]), torch.tensor([[1.0, 0.0], [-1.0, 0.0]]), beta=1.0)
    tensor([[ 0.4472,  1.3416],
            [-0.4472,  1.3416]])
    """
    centers = checks.matching_rows("centers", centers, embeddings)
    labels = checks.labels(embeddings, labels, len(centers))
    own, different = centers.detach()[labels], ClassIndex(labels).different
    with torch.no_grad():  # the angles are constants of the gradient
        x, c = unit(embeddings), unit(own)
        nearest = x[(c @ x.T).masked_fill(~different, -math.inf).argmax(1)]
        gap = half_angles(nearest, c) - half_angles(x, c)  # (nearest_i - own_i) / 2, (batch, 1)
        gap = gap.clamp(min=0) if margin == "clipped" else gap.abs()
        k = (2 * gap.sin()).masked_fill(~different.any(1, keepdim=True), 0.0)
    length = norms(embeddings)
    step = beta * k * length  # M ||x - c||
    moved = embeddings + step * unit(embeddings - own)  # v
    return torch.where(step > 0, unit(moved) * length, embeddings)


class VirtualPoints(nn.Module):
    """A loss on the batch and its virtual points (module docstring).

    loss: any module of embeddings and labels. beta, margin and rate are those of `ALMN`; beta = 0
    repeats the batch. A loss of clusters is not for it: a virtual point is in no cluster.

    >>> from kinspace.losses import Contrastive
    >>> criterion = VirtualPoints(Contrastive(), num_classes=2, dim=2, beta=1.0)
    >>> x = torch.tensor([[1.0, 0.1], [1.0, -0.1], [0.0, 1.0]])
    >>> float(criterion(x, torch.tensor([0, 0, 1]))) > 0
    True
    """

    __call__: Callable[..., Tensor]
    extra_repr = options_repr

    def __init__(
        self,
        loss: nn.Module,
        num_classes: int,
        dim: int,
        *,
        beta: float = 3.0,
        margin: str = "clipped",
        rate: float = 0.5,
    ) -> None:
        super().__init__()
        if getattr(loss, "takes", None) == "clusters":
            raise ValueError(
                f"virtual_points: expected a loss of embeddings and labels, got "
                f"{type(loss).__name__}, which takes clusters; leave virtual_points at 0"
            )
        self.loss = loss
        keep_options(self, virtual_points, beta=beta, margin=margin)
        has_proxies = isinstance(self.proxies, Tensor) and self.proxies.shape == (num_classes, dim)
        self.class_centers = None if has_proxies else ClassCenters(num_classes, dim, rate=rate)

    @property
    def proxies(self) -> Tensor | None:
        """The proxies of the loss; None where it has none."""
        found = getattr(self.loss, "proxies", None)
        return found if isinstance(found, Tensor) else None

    @property
    def groups(self) -> int | tuple[int, ...] | None:
        """The learners of the loss, where it has some."""
        return getattr(self.loss, "groups", None)

    @takes_labels
    def forward(self, embeddings: Tensor, labels: Tensor, **samples: Unpack[Anchors]) -> Tensor:
        labels = checks.labels(embeddings, labels)
        if self.class_centers is not None:
            centers = self.class_centers(embeddings, labels)
        else:
            assert self.proxies is not None
            centers = self.proxies.detach().to(embeddings.dtype)
        points = virtual_points(embeddings, labels, centers, **kept_options(self))
        weights = anchor_weights(samples)
        if weights is not None:  # a virtual point weighs as its sample
            samples["weights"] = weights.repeat(2)
        value: Tensor = self.loss(torch.cat([embeddings, points]), labels.repeat(2), **samples)
        return value.view(2, -1).mean(0) if value.ndim else value
