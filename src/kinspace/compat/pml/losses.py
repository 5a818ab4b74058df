"""The losses of pytorch-metric-learning by name, each a loss of kinspace called as there.

    loss(embeddings, labels, indices_tuple=None, ref_emb=None, ref_labels=None)

indices_tuple is what a miner there returns: (anchors, positives, negatives), or the pairs
(anchors, positives, anchors, negatives). Defaults are those there; where a formula differs the page
on coming from pytorch-metric-learning says how.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from kinspace import losses as ours
from kinspace._core.references import chosen, compared, triplets_of_pairs
from kinspace._core.samples import inputs_of
from kinspace._core.tensor_ops import upcast_half
from kinspace._core.vectors import unit
from kinspace.compat.pml.distances import LpDistance
from kinspace.compat.pml.reducers import AvgNonZeroReducer, MeanReducer, SumReducer

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

Indices = tuple[Tensor, ...]
Reducer = AvgNonZeroReducer | MeanReducer | SumReducer


class Loss(nn.Module):
    """A loss of kinspace, called as there.

    normalize: whether embeddings are scaled to length 1 first, as the distances there do; scale:
    what they are multiplied by after. average: None where the loss reduces itself; "anchors", the
    mean over the anchors that have a positive, or "pairs", over the positive pairs.

    >>> criterion = TripletMarginLoss(margin=0.2)
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


def _distance(given: LpDistance | None, power: int = 1) -> LpDistance:
    return LpDistance(power=power) if given is None else given


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
    distance: LpDistance | None = None,
    reducer: Reducer | None = None,
) -> Loss:
    """`kinspace.losses.Contrastive`: plain distances of unit vectors, means over terms above 0."""
    if pos_margin:
        raise ValueError(f"pos_margin: expected 0, got {pos_margin}")
    distance, reduction = _distance(distance), (reducer or AvgNonZeroReducer()).reduction
    loss = ours.Contrastive(
        margin=float(neg_margin),
        reduction="mean_each" if reduction == "mean" else reduction,  # of same and of different
        squared=distance.power == 2,
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
    normalize = _distance(distance).normalize_embeddings
    return Loss(ours.LiftedStructure(margin=float(neg_margin)), normalize=normalize)


class _AllTriplets(nn.Module):
    """Margin loss with one boundary, on given triplets or on all."""

    def __init__(self, margin: float, boundary: float, learnt: bool, weight: float) -> None:
        super().__init__()
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
            embeddings, triplets, margin=self.margin, boundary=self.boundary, reference=reference
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
    loss = _AllTriplets(float(margin), float(beta), learn_beta, float(nu))
    return Loss(loss, normalize=_distance(distance).normalize_embeddings)


def MultiSimilarityLoss(alpha: float = 2, beta: float = 50, base: float = 0.5) -> Loss:
    """`kinspace.losses.MultiSimilarity` without its mining, which is a miner there."""
    loss = ours.MultiSimilarity(
        alpha=float(alpha), beta=float(beta), base=float(base), mining_margin=None
    )
    return Loss(loss)


def NCALoss(softmax_scale: float = 1, *, distance: LpDistance | None = None) -> Loss:
    """`kinspace.losses.NCA`, of unit vectors times the root of the scale."""
    normalize = _distance(distance, 2).normalize_embeddings
    if not normalize and softmax_scale != 1:
        raise ValueError("softmax_scale: expected 1 for embeddings as they are; scale them instead")
    return Loss(ours.NCA(), normalize=normalize, scale=math.sqrt(softmax_scale))


def NPairsLoss() -> Loss:
    """`kinspace.losses.NPair` with one pair a class, of unit vectors."""
    return Loss(ours.NPair(anchors="first"), normalize=True)


def NTXentLoss(temperature: float = 0.07) -> Loss:
    """`kinspace.losses.NTXent`, averaged over the positive pairs."""
    return Loss(ours.NTXent(temperature=temperature, reduction="none"), average="pairs")


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


def SupConLoss(temperature: float = 0.1) -> Loss:
    """`kinspace.losses.SupCon`, averaged over the anchors that have a positive."""
    return Loss(ours.SupCon(temperature=temperature, reduction="none"), average="anchors")


def TripletMarginLoss(
    margin: float = 0.05, *, distance: LpDistance | None = None, reducer: Reducer | None = None
) -> Loss:
    """`kinspace.losses.Triplet`: plain distances of unit vectors, the mean over terms above 0."""
    distance = _distance(distance)
    loss = ours.Triplet(
        margin=float(margin),
        squared=distance.power == 2,
        reduction=(reducer or AvgNonZeroReducer()).reduction,
    )
    return Loss(loss, normalize=distance.normalize_embeddings)


def TupletMarginLoss(margin: float = 5.73, scale: float = 64) -> Loss:
    """`kinspace.losses.TupletMargin`, averaged over positive pairs; the margin in degrees."""
    loss = ours.TupletMargin(slack=math.radians(margin), scale=float(scale), reduction="none")
    return Loss(loss, average="pairs")


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

    def forward(self, embeddings: Tensor, *, ref_emb: Tensor) -> Tensor:
        return self.loss(embeddings, ref_emb)  # type: ignore[no-any-return]


class CrossBatchMemory(nn.Module):
    """`kinspace.losses.CrossBatchMemory` around a loss of this module.

    >>> criterion = CrossBatchMemory(SupConLoss(), embedding_size=3, memory_size=100)
    >>> criterion(torch.eye(3), torch.tensor([0, 0, 1])) > 0
    tensor(True)
    """

    def __init__(self, loss: Loss, embedding_size: int, memory_size: int = 1024) -> None:
        super().__init__()
        self.memory = ours.CrossBatchMemory(_AsOurs(loss), memory_size, embedding_size)

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        return self.memory(embeddings, labels)  # type: ignore[no-any-return]


class _AsOurs(nn.Module):
    """A loss of this module, called as those of kinspace."""

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self.loss = loss

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        *,
        reference: Tensor,
        reference_labels: Tensor,
        includes_batch: bool,
    ) -> Tensor:
        others = {"includes_batch": includes_batch}
        return self.loss(embeddings, labels, None, reference, reference_labels, **others)  # type: ignore[no-any-return]


class SelfSupervisedLoss(nn.Module):
    """Two views of the same samples, each other's positives.

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
    """The weighted sum of losses.

    >>> criterion = MultipleLosses([SupConLoss(), NTXentLoss()], weights=[1.0, 0.5])
    >>> criterion(torch.eye(4), torch.tensor([0, 0, 1, 1])) > 0
    tensor(True)
    """

    def __init__(self, losses: Sequence[nn.Module], weights: Sequence[float] | None = None) -> None:
        super().__init__()
        self.losses = nn.ModuleList(losses)
        self.weights = [1.0] * len(losses) if weights is None else list(weights)

    def forward(
        self, embeddings: Tensor, labels: Tensor, indices_tuple: Indices | None = None
    ) -> Tensor:
        terms = [
            weight * loss(embeddings, labels, indices_tuple)
            for weight, loss in zip(self.weights, self.losses, strict=True)
        ]
        return torch.stack(terms).sum()
