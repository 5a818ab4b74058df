"""The miners of pytorch-metric-learning by name, each a function of `kinspace.miners`.

    indices_tuple = miner(embeddings, labels, ref_emb=None, ref_labels=None)

They return three tensors (anchors, positives, negatives), or four of pairs (anchors, positives,
anchors, negatives), and scale embeddings to length 1 first, unless the distance says otherwise.
A miner that only compares distances takes any Euclidean one, and the cosine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from kinspace import miners as ours
from kinspace._core.tensor_ops import upcast_half
from kinspace._core.vectors import unit
from kinspace.compat.pml.distances import CosineSimilarity, Distance, LpDistance

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
        self,
        miner: Callable[..., Tensor],
        *,
        as_pairs: bool = False,
        normalize: bool = True,
        **options: Any,
    ) -> None:
        super().__init__()
        self.miner, self.as_pairs, self.options = miner, as_pairs, options
        self.normalize = normalize

    @torch.no_grad()
    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
        **others: Any,
    ) -> tuple[Tensor, ...]:
        """others: `includes_batch`, where the reference begins with the batch."""
        x, labels = self._scaled(embeddings), labels.to(embeddings.device)
        given: dict[str, Any] = {}
        if ref_emb is not None:
            given = {"reference": self._scaled(ref_emb), "reference_labels": ref_labels, **others}
        found = self.miner(x, labels, **self.options, **given)
        if found.shape[1] == 3:
            anchor, positive, negative = found.unbind(1)
            return (anchor, positive, *([anchor] if self.as_pairs else []), negative)
        classes = labels if ref_labels is None else ref_labels
        same = labels[found[:, 0]] == classes[found[:, 1]]
        return *found[same].unbind(1), *found[~same].unbind(1)

    def _scaled(self, embeddings: Tensor) -> Tensor:
        return unit(upcast_half(embeddings)) if self.normalize else embeddings


def _normalize(distance: Distance | None, *words: str) -> bool:
    """Whether embeddings are scaled to length 1; a distance of another word is an error."""
    if distance is None:
        return True
    if distance.word not in words:
        raise ValueError(f"distance: expected one that is {' or '.join(words)}, got {distance}")
    return distance.normalize_embeddings


# Of distances that put pairs in one order a miner that takes the largest sees only the order.
IN_ORDER = ("euclidean", "squared_euclidean", "cosine")


def AngularMiner(angle: float = 20) -> Miner:
    """`kinspace.miners.angular`, of unit vectors; there the embeddings are used as given."""
    return Miner(ours.angular, degrees=float(angle))


def BatchHardMiner(*, distance: Distance | None = None) -> Miner:
    """`kinspace.miners.batch_hard`."""
    return Miner(ours.batch_hard, normalize=_normalize(distance, *IN_ORDER))


def BatchEasyHardMiner(
    pos_strategy: str = "easy",
    neg_strategy: str = "semihard",
    *,
    distance: Distance | None = None,
) -> Miner:
    """`kinspace.miners.easy_positive`, or `batch_hard` where both strategies are "hard".

    As there, the triplets come as pairs, in four tensors.
    """
    strategies = pos_strategy, neg_strategy
    normalize = _normalize(distance, *IN_ORDER)
    if strategies == ("hard", "hard"):
        return Miner(ours.batch_hard, as_pairs=True, normalize=normalize)
    if pos_strategy != "easy" or neg_strategy not in ("hard", "semihard"):
        raise ValueError(
            "BatchEasyHardMiner: expected an easy positive with a hard or semihard negative, or "
            f"both hard, got {strategies}"
        )
    negative = "hard" if neg_strategy == "hard" else "semi_hard"
    return Miner(ours.easy_positive, as_pairs=True, normalize=normalize, negative=negative)


def DistanceWeightedMiner(cutoff: float = 0.5, nonzero_loss_cutoff: float = 1.4) -> Miner:
    """`kinspace.miners.distance_weighted`: a negative for each positive pair."""
    return Miner(ours.distance_weighted, cutoff=cutoff, nonzero_cutoff=nonzero_loss_cutoff)


def HDCMiner(filter_percentage: float = 0.5, *, distance: Distance | None = None) -> Miner:
    """`kinspace.miners.hardest_pairs`."""
    normalize = _normalize(distance, *IN_ORDER)
    return Miner(ours.hardest_pairs, normalize=normalize, share=filter_percentage)


def MultiSimilarityMiner(
    epsilon: float = 0.1, *, distance: CosineSimilarity | None = None
) -> Miner:
    """`kinspace.miners.multi_similarity`."""
    return Miner(ours.multi_similarity, normalize=_normalize(distance, "cosine"), margin=epsilon)


def PairMarginMiner(
    pos_margin: float = 0.2, neg_margin: float = 0.8, *, distance: LpDistance | None = None
) -> Miner:
    """`kinspace.miners.pair_margin`."""
    return Miner(
        ours.pair_margin,
        normalize=_normalize(distance, "euclidean"),
        positive_margin=pos_margin,
        negative_margin=neg_margin,
    )


def TripletMarginMiner(
    margin: float = 0.2, type_of_triplets: str = "all", *, distance: LpDistance | None = None
) -> Miner:
    """`kinspace.miners.triplet_margin`; "semihard" is "semi_hard" there."""
    kind = "semi_hard" if type_of_triplets == "semihard" else type_of_triplets
    normalize = _normalize(distance, "euclidean")
    return Miner(ours.triplet_margin, normalize=normalize, margin=margin, kind=kind)


class EmbeddingsAlreadyPackagedAsTriplets(nn.Module):
    """Rows 0, 1, 2 are a triplet, rows 3, 4, 5 the next.

    >>> EmbeddingsAlreadyPackagedAsTriplets()(torch.eye(6), torch.zeros(6))
    (tensor([0, 3]), tensor([1, 4]), tensor([2, 5]))
    """

    def forward(self, embeddings: Tensor, labels: Tensor) -> tuple[Tensor, ...]:
        rows = torch.arange(len(embeddings), device=embeddings.device)
        return rows[::3], rows[1::3], rows[2::3]
