"""Virtual points in any loss: each sample brings a harder one of its class into the batch.

    L = loss(x_1, ..., x_N, g_1, ..., g_N; y, y)

g_i is ALMN's virtual point of x_i (`virtual_points`): x_i moved away from the center of its class
as far as its neighborhood allows, at its own length. The centers are the proxies of the loss where
it has one a class, else class centers that follow the embeddings as in ALMN.

Chen and Deng, ALMN: Deep embedding learning with geometrical virtual point generating, 2018, sec.
4: virtual points combine with other losses. It gives no formula for that; that they join the batch
as samples of their class is our choice. In ALMN itself they take the place of the positives alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

import torch
from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.options import options_repr
from kinspace._core.samples import Anchors, anchor_weights, takes_labels
from kinspace.losses.almn import MARGINS, virtual_points
from kinspace.losses.class_centers import ClassCenters

__all__ = ["VirtualPoints"]


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
        self.beta = checks.number("beta", beta, at_least=0)
        self.margin = checks.choice("margin", margin, MARGINS)
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
        points = virtual_points(embeddings, labels, centers, beta=self.beta, margin=self.margin)
        weights = anchor_weights(samples)
        if weights is not None:  # a virtual point weighs as its sample
            samples["weights"] = weights.repeat(2)
        value: Tensor = self.loss(torch.cat([embeddings, points]), labels.repeat(2), **samples)
        return value.view(2, -1).mean(0) if value.ndim else value

    def extra_repr(self) -> str:
        return options_repr(self, "beta", "margin")
