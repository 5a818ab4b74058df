"""A loss of kinspace, called as those of pytorch-metric-learning."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from kinspace import losses as ours
from kinspace._core.references import chosen, compared
from kinspace._core.samples import inputs_of
from kinspace._core.tensor_ops import upcast_half
from kinspace._core.vectors import unit
from kinspace.compat.pml.distances import LpDistance

__all__ = ["Indices", "Loss"]

Indices = tuple[Tensor, ...]


class Loss(nn.Module):
    """A loss of kinspace, called as there.

    normalize: whether embeddings are scaled to length 1 first, as the distances there do; scale:
    what they are multiplied by after. average: None where the loss reduces itself; "anchors", the
    mean over the anchors that have a positive, or "pairs", over the positive pairs.

    >>> criterion = Loss(ours.Triplet(margin=0.2, squared=False), normalize=True)
    >>> x, labels = torch.eye(3), torch.tensor([0, 0, 1])
    >>> criterion(x, labels), criterion(x, labels, (labels[:1], labels[:1] + 1, labels[2:] + 1))
    (tensor(0.2000), tensor(0.2000))
    """

    def __init__(
        self,
        loss: nn.Module,
        *,
        normalize: bool = False,
        scale: float = 1.0,
        average: str | None = None,
    ) -> None:
        super().__init__()
        self.loss, self.normalize, self.scale, self.average = loss, normalize, scale, average

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        indices_tuple: Indices | None = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
        **others: Any,
    ) -> Tensor:
        given = dict(others)
        labels = labels.to(embeddings.device)
        takes = inputs_of(self.loss.forward)
        if ref_emb is not None:
            given |= {"reference": self._scaled(ref_emb), "reference_labels": ref_labels}
        if indices_tuple is not None:
            given |= _tuples(indices_tuple)
        if wrong := [name for name in given if name not in takes]:
            raise ValueError(
                f"{wrong[0]}: expected none, {type(self.loss).__name__} does not take any, got some"
            )
        embeddings = self._scaled(embeddings)
        terms: Tensor = self.loss(embeddings, labels, **given)
        return terms if self.average is None else self._averaged(terms, embeddings, labels, given)

    def get_logits(self, embeddings: Tensor) -> Tensor:
        """The logits of a loss with a table of classes, without its margin."""
        if not hasattr(self.loss, "proxies") and not isinstance(self.loss, ours.SubCenterArcFace):
            raise AttributeError(f"get_logits: {type(self.loss).__name__} has no table of classes")
        return _logits(self.loss, embeddings)

    @property
    def W(self) -> Tensor:
        """The table of classes as there, (dim, classes): a view of the parameter here."""
        centers = getattr(self.loss, "centers", None)
        table: Any = self.loss.weight if centers is None else centers.flatten(0, 1)
        return table.T  # type: ignore[no-any-return]

    @property
    def proxies(self) -> Tensor:
        """The proxies, (classes, dim)."""
        return self.loss.proxies  # type: ignore[return-value]

    @property
    def beta(self) -> Tensor:
        """The boundary of a margin loss, (1,)."""
        return torch.as_tensor(self.loss.boundary).reshape(1)  # type: ignore[arg-type]

    def _scaled(self, embeddings: Tensor) -> Tensor:
        return self.scale * unit(upcast_half(embeddings)) if self.normalize else embeddings

    def _averaged(
        self, terms: Tensor, embeddings: Tensor, labels: Tensor, given: dict[str, Any]
    ) -> Tensor:
        _, whole = compared(
            embeddings,
            labels,
            given.get("reference"),
            given.get("reference_labels"),
            given.get("includes_batch", False),
        )
        index = chosen(given.get("pairs"), given.get("triplets"), whole)
        counts = index.positives[1].sum(1)  # positives of each anchor
        weights = counts if self.average == "pairs" else (counts > 0)
        value: Tensor = (weights * terms).sum() / weights.sum().clamp(min=1)
        return value


def _tuples(indices: Indices) -> dict[str, Tensor]:
    if len(indices) == 3:
        return {"triplets": torch.stack([column.long() for column in indices], 1)}
    if len(indices) != 4:
        raise ValueError(f"indices_tuple: expected 3 or 4 tensors, got {len(indices)}")
    first, positive, second, negative = (column.long() for column in indices)
    pairs = [torch.stack([first, positive], 1), torch.stack([second, negative], 1)]
    return {"pairs": torch.cat(pairs)}


def _logits(loss: nn.Module, embeddings: Tensor) -> Tensor:
    """What a loss with a table of classes compares, (batch, classes), without its margin."""
    x = unit(upcast_half(embeddings))
    if isinstance(loss, ours.ProxyNCA):
        return LpDistance(power=2)(x, loss.proxies)
    if isinstance(loss, ours.SubCenterArcFace):
        nearest = (x @ unit(loss.centers).flatten(0, 1).T).unflatten(1, loss.centers.shape[:2])
        return loss.scale * nearest.amax(2)  # type: ignore[no-any-return]
    table = unit(loss.proxies)  # type: ignore[arg-type]
    return x @ table.T * getattr(loss, "scale", 1.0)  # type: ignore[no-any-return]
