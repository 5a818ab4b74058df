"""Warnings about trainings that go wrong, from a few statistics of the batches.

collapse       all embeddings point in one direction: the mean cosine of two samples is above 0.999
stuck          the loss stays within 1 % of the margin, its value where all embeddings are equal
no gradient    NRA: most anchors have a negative as their nearest sample (r- = 0), or a positive
               as their farthest (r+ = 1), where its gradient is 0
norms          unnormalized embeddings grow beyond a hundred times their first norm
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from kinspace._core.references import Miner
from kinspace._core.vectors import unit
from kinspace.losses import NRA, Contrastive, MultiSimilarity, Triplet, rank_statistics
from kinspace.miners import MINERS, mined_counts, multi_similarity

__all__ = ["Diagnostics", "batch_statistics", "mined_by_loss", "small_classes_warning"]

_COLLAPSED = 0.999  # an untrained net is often at 0.98
_PATIENCE = 5  # rows in succession before a warning


def small_classes_warning(sizes: Sequence[int], samples: int) -> str | None:
    """A warning if most classes have fewer samples than a batch takes of each class.

    >>> small_classes_warning([2, 3, 9], 4)
    '2 of 3 classes have fewer than 4 pictures, the number that a batch takes of each class'
    """
    few = sum(size < samples for size in sizes)
    if few * 2 <= len(sizes):
        return None
    return (
        f"{few} of {len(sizes)} classes have fewer than {samples} pictures, the number that a "
        "batch takes of each class"
    )


@torch.no_grad()
def batch_statistics(embeddings: Tensor, labels: Tensor, loss: nn.Module) -> dict[str, Tensor]:
    """Statistics of a batch: the mean norm, the mean cosine, and the fractions of NRA.

    >>> found = batch_statistics(torch.eye(2), torch.tensor([0, 1]), nn.Identity())
    >>> found["norm"], found["cosine"]
    (tensor(1.), tensor(0.))
    """
    count = len(embeddings)
    mean = unit(embeddings).mean(0)
    # the mean over all ordered pairs of two different samples
    cosine = (mean.square().sum() * count - 1) / max(count - 1, 1)
    found = {"norm": torch.linalg.vector_norm(embeddings, dim=1).mean(), "cosine": cosine}
    if isinstance(loss, NRA):
        negative, positive = rank_statistics(embeddings, labels)
        found |= {"nearest_is_negative": negative, "farthest_is_positive": positive}
    return found


@torch.no_grad()
def mined_by_loss(
    embeddings: Tensor, labels: Tensor, loss: nn.Module, *, ignore_label: int | None = None
) -> dict[str, int]:
    """How much the loss mines in a batch (`mined_counts`); empty where it takes all, or draws.

    >>> x, labels = torch.tensor([[0.0], [1.0], [3.0]]), torch.tensor([0, 0, 1])
    >>> mined_by_loss(x, labels, Triplet(mining="batch_hard"))
    {'triplets': 2, 'anchors': 2}
    """
    miner = _miner_of(loss)
    if miner is None:
        return {}
    if ignore_label is not None:
        kept = labels != ignore_label
        embeddings, labels = embeddings[kept], labels[kept]
    return mined_counts(miner(embeddings, labels), labels) if len(labels) else {}


def _miner_of(loss: nn.Module) -> Miner | None:
    """The miner that finds what a loss mines; None where there is none by its distance."""
    if isinstance(loss, Triplet):
        if not isinstance(loss.mining, str):
            return loss.mining
        euclidean = loss.distance in (None, "euclidean", "squared_euclidean")
        return MINERS.get(loss.mining) if euclidean else None
    if isinstance(loss, MultiSimilarity) and loss.mining_margin is not None:
        margin = float(loss.mining_margin)
        return partial(multi_similarity, margin=margin) if loss.distance == "cosine" else None
    return None


class Diagnostics:
    """Checks each row of metrics; gives each warning once.

    memory: what it remembers of earlier rows, JSON's types, for a checkpoint.

    >>> diagnostics = Diagnostics(nn.Identity())
    >>> [diagnostics.check({"cosine": 0.9995, "norm": 1.0, "loss": 1.0}) for _ in range(6)][-2]
    ['the embeddings have collapsed: two samples have a mean cosine of 0.9995; ...']
    """

    def __init__(self, loss: nn.Module, memory: dict[str, Any] | None = None) -> None:
        self._stuck_value = _collapsed_loss(loss)
        self._memory: dict[str, Any] = {} if memory is None else memory

    def check(self, row: Mapping[str, Any]) -> list[str]:
        """The warnings that are due after this row."""
        found = {}
        if row.get("cosine", 0.0) > _COLLAPSED:
            found["collapse"] = (
                f"the embeddings have collapsed: two samples have a mean cosine of "
                f"{row['cosine']:.4f}; lower the learning rate, or use another loss"
            )
        stuck = self._stuck_value
        if stuck is not None and abs(row["loss"] - stuck) < 0.01 * abs(stuck):
            found["stuck"] = (
                f"the loss stays at {stuck:.4g}, its value when nothing is learned; lower the "
                "learning rate, mine less hard, or warm up"
            )
        if row.get("nearest_is_negative", 0.0) > 0.5:
            found["no gradient"] = (
                f"NRA: {row['nearest_is_negative']:.0%} of the anchors have a negative as their "
                "nearest sample, where its gradient is 0; start from pretrained weights or warm "
                "start with a softmax"
            )
        if row.get("farthest_is_positive", 0.0) > 0.5:
            found["no pull"] = (
                f"NRA: {row['farthest_is_positive']:.0%} of the anchors have a positive as their "
                "farthest sample, where its gradient is 0; look for wrong labels, or warm start "
                "with a softmax"
            )
        norm = row.get("norm", 1.0)
        first = self._memory["first_norm"] = self._memory.get("first_norm") or norm
        if norm > 100 * first:
            found["norms"] = (
                f"the embeddings' norm has grown from {first:.3g} to {norm:.3g}; lower "
                "the learning rate or raise norm_weight"
            )
        before = self._memory.get("counts", {})
        counts = self._memory["counts"] = {name: before.get(name, 0) + 1 for name in found}
        return [text for name, text in found.items() if counts[name] == _PATIENCE]


def _collapsed_loss(loss: nn.Module) -> float | None:
    """The loss of a batch whose embeddings are all equal, for losses where that is the margin."""
    if isinstance(loss, Triplet) and loss.reduction != "sum":
        return float(loss.margin)
    if isinstance(loss, Contrastive) and loss.reduction == "mean_each":
        return float(loss.margin)
    return None
