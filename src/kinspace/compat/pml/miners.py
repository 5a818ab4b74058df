"""The miners of pytorch-metric-learning by name, each a function of `kinspace.miners`.

    indices_tuple = miner(embeddings, labels, ref_emb=None, ref_labels=None)

They return three tensors (anchors, positives, negatives), or four of pairs (anchors, positives,
anchors, negatives), and scale embeddings to length 1 first.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from kinspace import miners as ours
from kinspace._core.tensor_ops import upcast_half
from kinspace._core.vectors import unit

__all__ = [
    "AngularMiner",
    "BatchEasyHardMiner",
    "BatchHardMiner",
    "DistanceWeightedMiner",
    "EmbeddingsAlreadyPackagedAsTriplets",
    "HDCMiner",
    "Miner",
    "MultiSimilarityMiner",
    "PairMarginMiner",
    "TripletMarginMiner",
]


class Miner(nn.Module):
    """A miner of kinspace, called as there.

    >>> x, labels = torch.eye(3), torch.tensor([0, 0, 1])
    >>> BatchHardMiner()(x, labels)
    (tensor([0, 1]), tensor([1, 0]), tensor([2, 2]))
    """

    def __init__(
        self, miner: Callable[..., Tensor], *, as_pairs: bool = False, **options: Any
    ) -> None:
        super().__init__()
        self.miner, self.as_pairs, self.options = miner, as_pairs, options

    @torch.no_grad()
    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        x = unit(upcast_half(embeddings))
        given: dict[str, Any] = {}
        if ref_emb is not None:
            given = {"reference": unit(upcast_half(ref_emb)), "reference_labels": ref_labels}
        found = self.miner(x, labels, **self.options, **given)
        if found.shape[1] == 3:
            anchor, positive, negative = found.unbind(1)
            return (anchor, positive, *([anchor] if self.as_pairs else []), negative)
        others = labels if ref_labels is None else ref_labels
        same = labels[found[:, 0]] == others[found[:, 1]]
        return *found[same].unbind(1), *found[~same].unbind(1)


def AngularMiner(angle: float = 20) -> Miner:
    """`kinspace.miners.angular`, of unit vectors; there the embeddings are used as given."""
    return Miner(ours.angular, degrees=float(angle))


def BatchHardMiner() -> Miner:
    """`kinspace.miners.batch_hard`."""
    return Miner(ours.batch_hard)


def BatchEasyHardMiner(pos_strategy: str = "easy", neg_strategy: str = "semihard") -> Miner:
    """`kinspace.miners.easy_positive`, or `batch_hard` where both strategies are "hard".

    As there, the triplets come as pairs, in four tensors.
    """
    strategies = pos_strategy, neg_strategy
    if strategies == ("hard", "hard"):
        return Miner(ours.batch_hard, as_pairs=True)
    if pos_strategy != "easy" or neg_strategy not in ("hard", "semihard"):
        raise ValueError(
            "BatchEasyHardMiner: expected an easy positive with a hard or semihard negative, or "
            f"both hard, got {strategies}"
        )
    negative = "hard" if neg_strategy == "hard" else "semi_hard"
    return Miner(ours.easy_positive, as_pairs=True, negative=negative)


def DistanceWeightedMiner(cutoff: float = 0.5, nonzero_loss_cutoff: float = 1.4) -> Miner:
    """`kinspace.miners.distance_weighted`: a negative for each positive pair."""
    return Miner(ours.distance_weighted, cutoff=cutoff, nonzero_cutoff=nonzero_loss_cutoff)


def HDCMiner(filter_percentage: float = 0.5) -> Miner:
    """`kinspace.miners.hardest_pairs`."""
    return Miner(ours.hardest_pairs, share=filter_percentage)


def MultiSimilarityMiner(epsilon: float = 0.1) -> Miner:
    """`kinspace.miners.multi_similarity`."""
    return Miner(ours.multi_similarity, margin=epsilon)


def PairMarginMiner(pos_margin: float = 0.2, neg_margin: float = 0.8) -> Miner:
    """`kinspace.miners.pair_margin`."""
    return Miner(ours.pair_margin, positive_margin=pos_margin, negative_margin=neg_margin)


def TripletMarginMiner(margin: float = 0.2, type_of_triplets: str = "all") -> Miner:
    """`kinspace.miners.triplet_margin`; "semihard" is "semi_hard" there."""
    kind = "semi_hard" if type_of_triplets == "semihard" else type_of_triplets
    return Miner(ours.triplet_margin, margin=margin, kind=kind)


class EmbeddingsAlreadyPackagedAsTriplets(nn.Module):
    """Rows 0, 1, 2 are a triplet, rows 3, 4, 5 the next.

    >>> EmbeddingsAlreadyPackagedAsTriplets()(torch.eye(6), torch.zeros(6))
    (tensor([0, 3]), tensor([1, 4]), tensor([2, 5]))
    """

    def forward(self, embeddings: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        rows = torch.arange(len(embeddings), device=embeddings.device)
        return rows[::3], rows[1::3], rows[2::3]
