"""Warnings in plain words: what goes wrong in metric learning, seen from a few numbers.

collapse       embeddings all point one way: mean cosine of two samples above 0.999
stuck          the loss stays within 1 % of the margin, its value where all embeddings are one
no gradient    NRA: most anchors have a negative as their nearest sample (r- = 0), or a positive
               as their farthest (r+ = 1), where its gradient is 0
norms          unnormalized embeddings grow beyond a hundred times their first length
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from kinspace._core.normalization import unit
from kinspace.losses import NRA, Contrastive, Triplet, rank_statistics

__all__ = ["Watch", "few_pictures", "statistics"]

_COLLAPSED = 0.999  # a net that has not learnt yet is often at 0.98
_PATIENCE = 5  # windows in a row before a warning is given


def few_pictures(sizes: Sequence[int], asked: int) -> str | None:
    """A warning if most classes have fewer samples than a batch asks of each.

    >>> few_pictures([2, 3, 9], 4)
    '2 of 3 classes have fewer than 4 pictures, those a batch takes of each: they are taken whole'
    """
    few = sum(size < asked for size in sizes)
    if few * 2 <= len(sizes):
        return None
    return (
        f"{few} of {len(sizes)} classes have fewer than {asked} pictures, those a batch takes of "
        "each: they are taken whole"
    )


@torch.no_grad()
def statistics(embeddings: Tensor, labels: Tensor, loss: nn.Module) -> dict[str, Tensor]:
    """Numbers of one batch worth keeping: norm, mean cosine, and NRA's fractions.

    >>> found = statistics(torch.eye(2), torch.tensor([0, 1]), nn.Identity())
    >>> found["norm"], found["cosine"]
    (tensor(1.), tensor(0.))
    """
    count = len(embeddings)
    mean = unit(embeddings).mean(0)
    # the mean over all ordered pairs, without the pairs of a sample with itself
    cosine = (mean.square().sum() * count - 1) / max(count - 1, 1)
    found = {"norm": torch.linalg.vector_norm(embeddings, dim=1).mean(), "cosine": cosine}
    if isinstance(loss, NRA):
        negative, positive = rank_statistics(embeddings, labels)
        found |= {"nearest_is_negative": negative, "farthest_is_positive": positive}
    return found


class Watch:
    """Looks at each logged row and gives each warning once.

    >>> watch = Watch(nn.Identity())
    >>> [watch.look({"cosine": 0.9995, "norm": 1.0, "loss": 1.0}) for _ in range(6)][-2]
    ['the embeddings have collapsed: two samples have a mean cosine of 0.9995; ...']
    """

    def __init__(self, loss: nn.Module) -> None:
        self._idle = _idle_value(loss)
        self._first_norm: float | None = None
        self._in_a_row: dict[str, int] = {}

    def look(self, row: Mapping[str, Any]) -> list[str]:
        """The warnings that are due after one more row."""
        found = {}
        if row.get("cosine", 0.0) > _COLLAPSED:
            found["collapse"] = (
                f"the embeddings have collapsed: two samples have a mean cosine of "
                f"{row['cosine']:.4f}; lower the learning rate, or take another loss"
            )
        if self._idle is not None and abs(row["loss"] - self._idle) < 0.01 * abs(self._idle):
            found["stuck"] = (
                f"the loss stays at {self._idle:.4g}, its value when nothing is learnt; lower the "
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
        self._first_norm = self._first_norm or norm
        if norm > 100 * self._first_norm:
            found["norms"] = (
                f"the embeddings' norm has grown from {self._first_norm:.3g} to {norm:.3g}; lower "
                "the learning rate or raise norm_weight"
            )
        self._in_a_row = {name: self._in_a_row.get(name, 0) + 1 for name in found}
        return [text for name, text in found.items() if self._in_a_row[name] == _PATIENCE]


def _idle_value(loss: nn.Module) -> float | None:
    """The loss of a batch whose embeddings are all one, where that is the margin."""
    if isinstance(loss, Triplet) and loss.reduction != "sum":
        return float(loss.margin)
    if isinstance(loss, Contrastive) and loss.reduction == "mean_each":
        return float(loss.margin)
    return None
