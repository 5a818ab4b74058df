"""The losses of pytorch-metric-learning by name, each a loss of kinspace called as there.

    loss(embeddings, labels, indices_tuple=None, ref_emb=None, ref_labels=None)

indices_tuple is what a miner there returns: (anchors, positives, negatives), or the pairs
(anchors, positives, anchors, negatives). Defaults are those there; where a formula differs the page
on coming from pytorch-metric-learning says how.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from kinspace import losses as ours
from kinspace._core.references import compared, triplets_of_pairs
from kinspace.compat.pml.distances import CosineSimilarity, Distance, LpDistance
from kinspace.compat.pml.loss import Loss
from kinspace.compat.pml.reducers import AvgNonZeroReducer, MeanReducer, SumReducer
from kinspace.compat.pml.wrappers import (
    CrossBatchMemory,
    MultipleLosses,
    SelfSupervisedLoss,
    VICRegLoss,
)

__all__ = [
    "AngularLoss",
    "ArcFaceLoss",
    "CircleLoss",
    "ContrastiveLoss",
    "CosFaceLoss",
    "CrossBatchMemory",
    "FastAPLoss",
    "HistogramLoss",
    "LiftedStructureLoss",
    "Loss",
    "MarginLoss",
    "MultiSimilarityLoss",
    "MultipleLosses",
    "NCALoss",
    "NPairsLoss",
    "NTXentLoss",
    "NormalizedSoftmaxLoss",
    "ProxyAnchorLoss",
    "ProxyNCALoss",
    "RankedListLoss",
    "SelfSupervisedLoss",
    "SmoothAPLoss",
    "SoftTripleLoss",
    "SphereFaceLoss",
    "SubCenterArcFaceLoss",
    "SupConLoss",
    "TripletMarginLoss",
    "TupletMarginLoss",
    "VICRegLoss",
]

Reducer = AvgNonZeroReducer | MeanReducer | SumReducer


def _distance(given: Distance | None, power: int = 1) -> Distance:
    return LpDistance(power=power) if given is None else given


def _require(distance: Distance, *words: str) -> None:
    if distance.word not in words:
        raise ValueError(f"distance: expected one that is {' or '.join(words)}, got {distance}")


def AngularLoss(alpha: float = 40) -> Loss:
    """`kinspace.losses.Angular`: one positive for each sample, where there it is every pair."""
    return Loss(ours.Angular(degrees=float(alpha)), normalize=True)


def ArcFaceLoss(
    num_classes: int, embedding_size: int, margin: float = 28.6, scale: float = 64
) -> Loss:
    """`kinspace.losses.ArcFace`; the margin in degrees."""
    margin = math.radians(margin)
    return Loss(ours.ArcFace(num_classes, embedding_size, margin=margin, scale=float(scale)))


def CircleLoss(m: float = 0.4, gamma: float = 80) -> Loss:
    """`kinspace.losses.Circle`."""
    return Loss(ours.Circle(margin=m, scale=float(gamma)))


def ContrastiveLoss(
    pos_margin: float = 0,
    neg_margin: float = 1,
    *,
    distance: Distance | None = None,
    reducer: Reducer | None = None,
) -> Loss:
    """`kinspace.losses.Contrastive`: plain distances of unit vectors, means over terms above 0.

    Margins of a similarity are similarities; pos_margin is the one of distance 0.
    """
    distance, reduction = _distance(distance), (reducer or AvgNonZeroReducer()).reduction
    most = {"cosine": 1.0, "dot": 0.0}.get(distance.word, 0.0)  # the similarity of distance 0
    if pos_margin != most:
        raise ValueError(f"pos_margin: expected {most:g}, got {pos_margin}")
    loss = ours.Contrastive(
        margin=most - neg_margin if distance.is_inverted else float(neg_margin),
        reduction="mean_each" if reduction == "mean" else reduction,  # of same and of different
        distance=distance.word,
    )
    return Loss(loss, normalize=distance.normalize_embeddings)


def CosFaceLoss(
    num_classes: int, embedding_size: int, margin: float = 0.35, scale: float = 64
) -> Loss:
    """`kinspace.losses.CosFace`."""
    return Loss(ours.CosFace(num_classes, embedding_size, margin=margin, scale=float(scale)))


def FastAPLoss(num_bins: int = 10) -> Loss:
    """`kinspace.losses.FastAP`, averaged over the anchors that have a positive."""
    return Loss(ours.FastAP(bins=num_bins, reduction="none"), average="anchors")


def HistogramLoss(n_bins: int | None = None, delta: float | None = None) -> Loss:
    """`kinspace.losses.Histogram`; n_bins there is one less than nodes here."""
    bins = round(2 / delta) if delta is not None else 100 if n_bins is None else n_bins
    return Loss(ours.Histogram(bins=bins + 1))


def LiftedStructureLoss(neg_margin: float = 1, *, distance: LpDistance | None = None) -> Loss:
    """`kinspace.losses.LiftedStructure`, of unit vectors."""
    _require(_distance(distance), "euclidean")
    normalize = _distance(distance).normalize_embeddings
    return Loss(ours.LiftedStructure(margin=float(neg_margin)), normalize=normalize)


class _AllTriplets(nn.Module):
    """Margin loss with one boundary, on given triplets or on all."""

    def __init__(
        self, margin: float, boundary: float, learnt: bool, weight: float, distance: str
    ) -> None:
        super().__init__()
        self.distance = distance
        value = torch.tensor(float(boundary))
        self.boundary: Any = nn.Parameter(value) if learnt else float(boundary)
        self.margin, self.weight, self.learnt = margin, weight, learnt

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        *,
        pairs: Tensor | None = None,
        triplets: Tensor | None = None,
        reference: Tensor | None = None,
        reference_labels: Tensor | None = None,
        includes_batch: bool = False,
    ) -> Tensor:
        reference, index = compared(embeddings, labels, reference, reference_labels, includes_batch)
        if triplets is None:
            if pairs is None:
                same = index.same
                if index.excludes_itself:
                    same.diagonal().fill_(False)
                pairs = torch.cat([same.nonzero(), index.different.nonzero()])
            triplets = triplets_of_pairs(pairs, index)
        loss = ours.margin_loss(
            embeddings,
            triplets,
            margin=self.margin,
            boundary=self.boundary,
            reference=reference,
            distance=self.distance,
        )
        return loss + self.weight * self.boundary if self.learnt else loss


def MarginLoss(
    margin: float = 0.2,
    nu: float = 0,
    beta: float = 1.2,
    *,
    learn_beta: bool = False,
    distance: LpDistance | None = None,
) -> Loss:
    """`kinspace.losses.margin_loss` on all triplets or given ones, with one boundary for all.

    With a boundary a class: `kinspace.losses.Margin`.
    """
    word = _distance(distance).word
    _require(_distance(distance), "euclidean", "squared_euclidean", "manhattan")
    loss = _AllTriplets(float(margin), float(beta), learn_beta, float(nu), word)
    return Loss(loss, normalize=_distance(distance).normalize_embeddings)


def MultiSimilarityLoss(
    alpha: float = 2, beta: float = 50, base: float = 0.5, *, distance: Distance | None = None
) -> Loss:
    """`kinspace.losses.MultiSimilarity` without its mining, which is a miner there."""
    distance = CosineSimilarity() if distance is None else distance
    loss = ours.MultiSimilarity(
        alpha=float(alpha),
        beta=float(beta),
        base=float(base) if distance.is_inverted else -float(base),  # of -D
        mining_margin=None,
        distance=distance.word,
    )
    return Loss(loss, normalize=distance.normalize_embeddings)


def NCALoss(softmax_scale: float = 1, *, distance: Distance | None = None) -> Loss:
    """`kinspace.losses.NCA`, of unit vectors times the root of the scale."""
    given = _distance(distance, 2)
    scaled = given.normalize_embeddings and given.word == "squared_euclidean"
    if softmax_scale != 1 and not scaled:
        raise ValueError("softmax_scale: expected 1 for this distance; scale the embeddings")
    loss = ours.NCA(distance=given.word)
    return Loss(loss, normalize=given.normalize_embeddings, scale=math.sqrt(softmax_scale))


def NPairsLoss() -> Loss:
    """`kinspace.losses.NPair` with one pair a class, of unit vectors."""
    return Loss(ours.NPair(anchors="first"), normalize=True)


def NTXentLoss(temperature: float = 0.07, *, distance: Distance | None = None) -> Loss:
    """`kinspace.losses.NTXent`, averaged over the positive pairs."""
    given = CosineSimilarity() if distance is None else distance
    loss = ours.NTXent(temperature=temperature, distance=given.word, reduction="none")
    return Loss(loss, normalize=given.normalize_embeddings, average="pairs")


def NormalizedSoftmaxLoss(num_classes: int, embedding_size: int, temperature: float = 0.05) -> Loss:
    """`kinspace.losses.NormalizedSoftmax`; the scale is 1 / temperature."""
    return Loss(ours.NormalizedSoftmax(num_classes, embedding_size, scale=1 / temperature))


def ProxyAnchorLoss(
    num_classes: int, embedding_size: int, margin: float = 0.1, alpha: float = 32
) -> Loss:
    """`kinspace.losses.ProxyAnchor`."""
    loss = ours.ProxyAnchor(num_classes, embedding_size, margin=margin, alpha=float(alpha))
    return Loss(loss)


def ProxyNCALoss(num_classes: int, embedding_size: int, softmax_scale: float = 1) -> Loss:
    """`kinspace.losses.ProxyNCA` with the positive in the denominator."""
    loss = ours.ProxyNCA(
        num_classes, embedding_size, scale=float(softmax_scale), positive_in_denominator=True
    )
    return Loss(loss)


def RankedListLoss(
    margin: float, Tn: float, imbalance: float = 0.5, alpha: float | None = None
) -> Loss:
    """`kinspace.losses.RankedList`; the weights of negatives are constants of the gradient."""
    loss = ours.RankedList(
        margin=float(margin),
        boundary=1 + margin / 2 if alpha is None else float(alpha),
        temperature=float(Tn),
        balance=float(imbalance),
    )
    return Loss(loss)


def SmoothAPLoss(temperature: float = 0.01) -> Loss:
    """`kinspace.losses.SmoothAP`: a sample is not in its own ranking; any sizes of classes."""
    return Loss(ours.SmoothAP(temperature=temperature, reduction="none"), average="anchors")


def SoftTripleLoss(
    num_classes: int,
    embedding_size: int,
    centers_per_class: int = 10,
    la: float = 20,
    gamma: float = 0.1,
    margin: float = 0.01,
) -> Loss:
    """`kinspace.losses.SoftTriple`."""
    loss = ours.SoftTriple(
        num_classes,
        embedding_size,
        centers=centers_per_class,
        scale=float(la),
        gamma=gamma,
        margin=margin,
    )
    return Loss(loss)


def SphereFaceLoss(num_classes: int, embedding_size: int, margin: int = 4) -> Loss:
    """`kinspace.losses.SphereFace`."""
    return Loss(ours.SphereFace(num_classes, embedding_size, multiplier=margin))


def SubCenterArcFaceLoss(
    num_classes: int,
    embedding_size: int,
    margin: float = 28.6,
    scale: float = 64,
    sub_centers: int = 3,
) -> Loss:
    """`kinspace.losses.SubCenterArcFace`; the margin in degrees."""
    loss = ours.SubCenterArcFace(
        num_classes,
        embedding_size,
        centers=sub_centers,
        margin=math.radians(margin),
        scale=float(scale),
    )
    return Loss(loss)


def SupConLoss(temperature: float = 0.1, *, distance: Distance | None = None) -> Loss:
    """`kinspace.losses.SupCon`, averaged over the anchors that have a positive."""
    given = CosineSimilarity() if distance is None else distance
    loss = ours.SupCon(temperature=temperature, distance=given.word, reduction="none")
    return Loss(loss, normalize=given.normalize_embeddings, average="anchors")


def TripletMarginLoss(
    margin: float = 0.05, *, distance: Distance | None = None, reducer: Reducer | None = None
) -> Loss:
    """`kinspace.losses.Triplet`: plain distances of unit vectors, the mean over terms above 0."""
    distance = _distance(distance)
    loss = ours.Triplet(
        margin=float(margin),
        distance=distance.word,
        reduction=(reducer or AvgNonZeroReducer()).reduction,
    )
    return Loss(loss, normalize=distance.normalize_embeddings)


def TupletMarginLoss(margin: float = 5.73, scale: float = 64) -> Loss:
    """`kinspace.losses.TupletMargin`, averaged over positive pairs; the margin in degrees."""
    loss = ours.TupletMargin(slack=math.radians(margin), scale=float(scale), reduction="none")
    return Loss(loss, average="pairs")
