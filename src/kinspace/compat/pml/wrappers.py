"""Losses over losses: a memory, two views, sums, and VICReg, which is of two views."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from kinspace import losses as ours

__all__ = ["CrossBatchMemory", "MultipleLosses", "SelfSupervisedLoss", "VICRegLoss"]

Indices = tuple[Tensor, ...]
Miner = Callable[..., Indices]


class VICRegLoss(nn.Module):
    """`kinspace.losses.VICReg`, called as `loss(embeddings, ref_emb=other_view)`.

    >>> x = torch.eye(3)
    >>> bool(VICRegLoss()(x, ref_emb=x) == ours.VICReg()(x, x))
    True
    """

    def __init__(
        self,
        invariance_lambda: float = 25,
        variance_mu: float = 25,
        covariance_v: float = 1,
        eps: float = 1e-4,
    ) -> None:
        super().__init__()
        self.loss = ours.VICReg(
            invariance=float(invariance_lambda),
            variance=float(variance_mu),
            covariance=float(covariance_v),
            eps=eps,
        )

    def forward(self, embeddings: Tensor, ref_emb: Tensor) -> Tensor:
        return self.loss(embeddings, ref_emb)  # type: ignore[no-any-return]


class CrossBatchMemory(nn.Module):
    """`kinspace.losses.CrossBatchMemory` around a loss of this package.

    miner: finds pairs or triplets between the batch and the memory; those given in a call are of
    the batch, and come on top.

    >>> from kinspace.compat.pml.losses import SupConLoss
    >>> criterion = CrossBatchMemory(SupConLoss(), embedding_size=3, memory_size=100)
    >>> criterion(torch.eye(3), torch.tensor([0, 0, 1])) > 0
    tensor(True)
    """

    def __init__(
        self,
        loss: nn.Module,
        embedding_size: int,
        memory_size: int = 1024,
        miner: Miner | None = None,
    ) -> None:
        super().__init__()
        self.memory = ours.CrossBatchMemory(_AsOurs(loss, miner), memory_size, embedding_size)

    def forward(
        self, embeddings: Tensor, labels: Tensor, indices_tuple: Indices | None = None
    ) -> Tensor:
        inner: Any = self.memory.loss
        inner.chosen = indices_tuple
        try:
            return self.memory(embeddings, labels)  # type: ignore[no-any-return]
        finally:
            inner.chosen = None

    def reset_queue(self) -> None:
        """Empty the memory."""
        self.memory.reset()


class _AsOurs(nn.Module):
    """A loss of this package, called as those of kinspace."""

    def __init__(self, loss: nn.Module, miner: Miner | None) -> None:
        super().__init__()
        self.loss, self.miner = loss, miner
        self.chosen: Indices | None = None

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        *,
        reference: Tensor,
        reference_labels: Tensor,
        includes_batch: bool,
    ) -> Tensor:
        others: dict[str, Any] = {"includes_batch": includes_batch}
        found = None
        if self.miner is not None:
            found = self.miner(embeddings, labels, reference, reference_labels, **others)
        if self.chosen is not None:
            found = self._with_all(found, labels, reference_labels)
        return self.loss(embeddings, labels, found, reference, reference_labels, **others)  # type: ignore[no-any-return]

    def _with_all(self, found: Indices | None, labels: Tensor, others: Tensor) -> Indices:
        """The chosen ones with those of the miner; without one with all pairs of the memory."""
        assert self.chosen is not None
        if found is None:
            same = labels[:, None] == others
            different = ~same
            same[:, : len(labels)].fill_diagonal_(False)
            found = (*same.nonzero().unbind(1), *different.nonzero().unbind(1))
        first, second = _as_pairs(self.chosen), _as_pairs(found)
        return tuple(torch.cat(columns) for columns in zip(first, second, strict=True))


def _as_pairs(indices: Indices) -> Indices:
    """Three columns of triplets as four of pairs."""
    if len(indices) == 4:
        return indices
    anchors, positives, negatives = indices
    return anchors, positives, anchors, negatives


class SelfSupervisedLoss(nn.Module):
    """Two views of the same samples, each other's positives.

    >>> from kinspace.compat.pml.losses import NTXentLoss
    >>> criterion = SelfSupervisedLoss(NTXentLoss())
    >>> criterion(torch.eye(3), torch.eye(3)) < 1e-4
    tensor(True)
    """

    def __init__(self, loss: nn.Module, symmetric: bool = True) -> None:
        super().__init__()
        self.loss, self.symmetric = loss, symmetric

    def forward(self, embeddings: Tensor, ref_emb: Tensor) -> Tensor:
        labels = torch.arange(len(embeddings), device=embeddings.device)
        if self.symmetric:
            return self.loss(torch.cat([embeddings, ref_emb]), labels.repeat(2))  # type: ignore[no-any-return]
        return self.loss(embeddings, labels, None, ref_emb, labels)  # type: ignore[no-any-return]


class MultipleLosses(nn.Module):
    """The weighted sum of losses, each with a miner or without: lists, or dicts with the same keys.

    >>> from kinspace.compat.pml.losses import NTXentLoss, SupConLoss
    >>> criterion = MultipleLosses([SupConLoss(), NTXentLoss()], weights=[1.0, 0.5])
    >>> criterion(torch.eye(4), torch.tensor([0, 0, 1, 1])) > 0
    tensor(True)
    """

    def __init__(
        self,
        losses: Sequence[nn.Module] | Mapping[str, nn.Module],
        miners: Sequence[Miner | None] | Mapping[str, Miner] | None = None,
        weights: Sequence[float] | Mapping[str, float] | None = None,
    ) -> None:
        super().__init__()
        self.names = list(_by_name(losses))
        self.losses = nn.ModuleList(_by_name(losses).values())
        self.miners = {k: v for k, v in _by_name(miners or {}).items() if v is not None}
        self.weights = dict.fromkeys(self.names, 1.0) if weights is None else _by_name(weights)
        if set(self.weights) != set(self.names):
            raise ValueError(f"weights: expected one for each loss, got {weights}")
        if isinstance(miners, Sequence) and len(miners) != len(self.names):
            raise ValueError(f"miners: expected one for each loss, got {len(miners)}")
        if not set(self.miners) <= set(self.names):
            raise ValueError(f"miners: expected names of losses, got {sorted(self.miners)}")

    def forward(
        self, embeddings: Tensor, labels: Tensor, indices_tuple: Indices | None = None
    ) -> Tensor:
        if self.miners and indices_tuple is not None:
            raise ValueError("indices_tuple: expected none beside miners, got some")
        terms = []
        for name, loss in zip(self.names, self.losses, strict=True):
            miner = self.miners.get(name)
            found = indices_tuple if miner is None else miner(embeddings, labels)
            terms.append(self.weights[name] * loss(embeddings, labels, found))
        return torch.stack(terms).sum()


def _by_name(values: Any) -> dict[str, Any]:
    if isinstance(values, Mapping):
        return dict(values)
    return {str(number): value for number, value in enumerate(values)}
