"""Cross-batch memory: the embeddings of the last batches as further positives and negatives.

    L = loss(X, y; reference = M),   M = the last `size` embeddings, those of this batch first

Every sample of the batch is an anchor; what it is compared to, itself excepted, is the whole
memory. The memory is a constant: the gradient passes through the anchors alone. Features drift
slowly once a network has settled, so that embeddings of some hundred steps ago are still good to
compare with; in the paper the memory starts after 1000 steps without it.

Wang et al., Cross-batch memory for embedding learning, CVPR 2020, Algorithm 1.

Deviation: a sample is not compared to its own copy in the memory, which Algorithm 1 leaves there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.options import options_repr
from kinspace._core.samples import Anchors, inputs_of, takes_labels

__all__ = ["CrossBatchMemory"]


class CrossBatchMemory(nn.Module):
    """A loss of pairs or triplets on the batch and a memory (module docstring).

    loss: any module that takes a reference (`kinspace.losses`). size: embeddings in the memory, the
    batch's included; dim: their dimension. The memory fills up from empty, so that the first value
    is that of the loss alone. It moves in training only, and is in the state.

    With several processes call it on the gathered batch (`kinspace.distributed.gather`), as any
    loss: all of them then hold the same memory.

    At the second call each sample has its class-mate at cosine 0, and in the memory, of another
    class, cosines 1 and 0: log(2 + e).

    >>> from kinspace.losses import SupCon
    >>> criterion = CrossBatchMemory(SupCon(temperature=1.0), size=1000, dim=2)
    >>> x, labels = torch.eye(2), torch.tensor([0, 0])
    >>> criterion(x, labels), criterion(x, labels + 1), len(criterion.memory)
    (tensor(0.), tensor(1.5514), 4)
    """

    __call__: Callable[..., Tensor]
    memory: Tensor  # (filled, dim), the newest first
    memory_labels: Tensor  # (filled,)

    def __init__(self, loss: nn.Module, size: int, dim: int) -> None:
        super().__init__()
        if "reference_labels" not in inputs_of(loss.forward):
            raise ValueError(
                f"loss: expected one that takes a reference, got {type(loss).__name__}; take a "
                "loss of pairs or triplets, such as Contrastive() or SupCon()"
            )
        self.loss = loss
        self.size = checks.integer("size", size, at_least=1)
        self.register_buffer("memory", torch.empty(0, checks.integer("dim", dim, at_least=1)))
        self.register_buffer("memory_labels", torch.empty(0, dtype=torch.long))

    @takes_labels
    def forward(self, embeddings: Tensor, labels: Tensor, **samples: Unpack[Anchors]) -> Tensor:
        labels = checks.labels(embeddings, labels)
        if embeddings.shape[1] != self.memory.shape[1]:
            raise ValueError(
                f"embeddings: expected {self.memory.shape[1]} columns like the memory, "
                f"got shape {tuple(embeddings.shape)}"
            )
        if len(embeddings) > self.size:
            raise ValueError(
                f"embeddings: expected at most {self.size} rows, the size of the memory, "
                f"got {len(embeddings)}"
            )
        batch = embeddings.detach().to(self.memory.dtype)
        memory = torch.cat([batch, self.memory])[: self.size]
        memory_labels = torch.cat([labels, self.memory_labels])[: self.size]
        if self.training:
            self.memory, self.memory_labels = memory, memory_labels
        return self.loss(  # type: ignore[no-any-return]
            embeddings,
            labels,
            reference=memory,
            reference_labels=memory_labels,
            includes_batch=True,
            **samples,
        )

    def reset(self) -> None:
        """Empty the memory, as after a jump of the weights."""
        self.memory, self.memory_labels = self.memory[:0], self.memory_labels[:0]

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        for name in ("memory", "memory_labels"):  # of as many rows as were saved
            saved, own = state_dict.get(prefix + name), getattr(self, name)
            if isinstance(saved, Tensor) and saved.shape[1:] == own.shape[1:]:
                setattr(self, name, own.new_empty(saved[: self.size].shape))
                state_dict[prefix + name] = saved[: self.size]
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def extra_repr(self) -> str:
        return f"{options_repr(self, 'size')}, dim={self.memory.shape[1]}"
