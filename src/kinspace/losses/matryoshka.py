"""Matryoshka: a loss on the first dimensions of the embeddings too, so that these serve alone.

    L = sum_k w_k loss(x[:, :d_k], y) / sum_k w_k

An embedding trained so can be cut to its first d_k dimensions at search, where memory or time are
short, with little loss. Search must then normalize what is left.

Kusupati et al., Matryoshka representation learning, NeurIPS 2022, Eq. 1 (which prints the sum).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import torch
from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.samples import Chosen, Labels
from kinspace._core.vectors import unit

__all__ = ["Matryoshka"]


class Matryoshka(nn.Module):
    """Any loss on several numbers of leading dimensions (module docstring).

    loss: one module for all, or a list with one for each, as losses with proxies need them.
    weights: one for each, equal where left out. normalize: whether each part is brought to length 1
    first, for losses that do not normalize.

    >>> from kinspace.losses import ProxyAnchor, SupCon
    >>> criterion = Matryoshka(SupCon(), dims=(2, 4))
    >>> x, labels = torch.eye(4), torch.tensor([0, 0, 1, 1])
    >>> bool(criterion(x, labels) == (SupCon()(x[:, :2], labels) + SupCon()(x, labels)) / 2)
    True
    >>> Matryoshka([ProxyAnchor(10, dim) for dim in (2, 4)], dims=(2, 4))
    Matryoshka(
      dims=[2, 4], weights=[0.5, 0.5], normalize=False
      (losses): ModuleList(
        (0-1): 2 x ProxyAnchor(alpha=32.0, margin=0.1)
      )
    )
    """

    def __init__(
        self,
        loss: nn.Module | Sequence[nn.Module],
        dims: Sequence[int],
        *,
        weights: Sequence[float] | None = None,
        normalize: bool = False,
    ) -> None:
        super().__init__()
        self.dims = [checks.integer("dims", dim, at_least=1) for dim in dims]
        losses = [loss] if isinstance(loss, nn.Module) else list(loss)
        if not self.dims or len(losses) not in (1, len(self.dims)):
            raise ValueError(
                f"loss: expected one, or one for each of {len(self.dims)} numbers of dimensions, "
                f"got {len(losses)}"
            )
        if weights is not None and len(weights) != len(self.dims):
            raise ValueError(f"weights: expected {len(self.dims)}, one for each, got {weights!r}")
        given = [checks.positive("weights", w) for w in weights or [1.0] * len(self.dims)]
        self.weights = [weight / sum(given) for weight in given]
        self.losses = nn.ModuleList(losses)
        self.normalize = normalize

    def forward(self, embeddings: Tensor, labels: Labels, **inputs: Unpack[Chosen]) -> Tensor:
        if embeddings.ndim != 2 or embeddings.shape[1] < max(self.dims):
            raise ValueError(
                f"embeddings: expected a matrix of at least {max(self.dims)} columns, "
                f"got shape {tuple(embeddings.shape)}"
            )
        terms, whole = [], inputs.get("reference")
        for place, (dim, weight) in enumerate(zip(self.dims, self.weights, strict=True)):
            loss = self.losses[place if len(self.losses) > 1 else 0]
            if whole is not None:
                inputs["reference"] = self._part(whole, dim)
            terms.append(weight * loss(self._part(embeddings, dim), labels, **inputs))
        return torch.stack(terms).sum(0)

    def _part(self, vectors: Tensor, dim: int) -> Tensor:
        return unit(vectors[:, :dim]) if self.normalize else vectors[:, :dim]

    def extra_repr(self) -> str:
        return f"dims={self.dims}, weights={self.weights}, normalize={self.normalize}"
