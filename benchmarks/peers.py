"""The losses of pytorch-metric-learning that are compared, set up to the formulas of ours.

A builder gets our module and reads its options and parameters, so that the two cannot drift apart.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class Peer:
    """A counterpart: what it is called there, how it is built, where its formula differs."""

    title: str
    build: Callable[[Any], nn.Module]
    difference: str = ""  # empty: the same value on the same batch, which a run checks


class TwoViews(nn.Module):
    """A loss of two tables, on the first half of a batch and the second."""

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        first, second = embeddings.tensor_split(2)
        return self.loss(first, second)  # type: ignore[no-any-return]


class Mined(nn.Module):
    """A loss on what a miner finds."""

    def __init__(self, loss: nn.Module, miner: nn.Module) -> None:
        super().__init__()
        self.loss = loss
        self.miner = miner

    def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        found = self.miner(embeddings, labels)
        return self.loss(embeddings, labels, found)  # type: ignore[no-any-return]


def version() -> str | None:
    """The version of pytorch-metric-learning, None where it is absent."""
    if importlib.util.find_spec("pytorch_metric_learning") is None:
        return None
    import pytorch_metric_learning

    return str(pytorch_metric_learning.__version__)


def _as_given(power: int) -> Any:
    """The distance of the embeddings as they are: the default there scales them to length 1."""
    from pytorch_metric_learning.distances import LpDistance

    return LpDistance(normalize_embeddings=False, power=power)


def _plain_triplet(ours: Any) -> Any:
    from pytorch_metric_learning import losses, reducers

    return losses.TripletMarginLoss(
        margin=ours.margin,
        distance=_as_given(2 if ours.squared else 1),
        reducer=reducers.MeanReducer(),
    )


def _semi_hard_triplet(ours: Any) -> nn.Module:
    from pytorch_metric_learning import miners

    miner = miners.TripletMarginMiner(
        margin=ours.margin,
        type_of_triplets="semihard",
        distance=_as_given(2 if ours.squared else 1),
    )
    return Mined(_plain_triplet(ours), miner)


def _batch_hard_triplet(ours: Any) -> nn.Module:
    from pytorch_metric_learning import miners

    miner = miners.BatchHardMiner(distance=_as_given(2 if ours.squared else 1))
    return Mined(_plain_triplet(ours), miner)


def _contrastive(ours: Any) -> nn.Module:
    from pytorch_metric_learning import losses, reducers

    return losses.ContrastiveLoss(  # type: ignore[no-any-return]
        neg_margin=ours.margin, distance=_as_given(2), reducer=reducers.MeanReducer()
    )


def _lifted_structure(ours: Any) -> nn.Module:
    from pytorch_metric_learning import losses

    return losses.LiftedStructureLoss(  # type: ignore[no-any-return]
        neg_margin=ours.margin, distance=_as_given(1)
    )


def _n_pair(ours: Any) -> nn.Module:
    from pytorch_metric_learning import distances, losses

    return losses.NPairsLoss(  # type: ignore[no-any-return]
        distance=distances.DotProductSimilarity(normalize_embeddings=False)
    )


def _angular(ours: Any) -> nn.Module:
    from pytorch_metric_learning import losses

    return losses.AngularLoss(alpha=ours.degrees)  # type: ignore[no-any-return]


def _proxy_nca(ours: Any) -> nn.Module:
    from pytorch_metric_learning import losses

    peer = losses.ProxyNCALoss(*ours.proxies.shape, softmax_scale=ours.scale)
    return _copied(peer, "proxies", ours.proxies)


def _proxy_anchor(ours: Any) -> nn.Module:
    from pytorch_metric_learning import losses

    peer = losses.ProxyAnchorLoss(*ours.proxies.shape, margin=ours.margin, alpha=ours.alpha)
    return _copied(peer, "proxies", ours.proxies)


def _multi_similarity(ours: Any) -> nn.Module:
    from pytorch_metric_learning import losses, miners

    loss = losses.MultiSimilarityLoss(alpha=ours.alpha, beta=ours.beta, base=ours.base)
    return Mined(loss, miners.MultiSimilarityMiner(epsilon=ours.mining_margin))


def _circle(ours: Any) -> nn.Module:
    from pytorch_metric_learning import losses

    return losses.CircleLoss(m=ours.margin, gamma=ours.scale)  # type: ignore[no-any-return]


def _margin(ours: Any) -> nn.Module:
    from pytorch_metric_learning import losses, miners

    loss = losses.MarginLoss(
        margin=ours.margin,
        nu=ours.boundary_weight,
        beta=ours.boundary[0].item(),
        learn_beta=True,
        num_classes=len(ours.boundary),
    )
    miner = miners.DistanceWeightedMiner(
        cutoff=ours.cutoff, nonzero_loss_cutoff=ours.nonzero_cutoff
    )
    return Mined(loss, miner)


def _histogram(ours: Any) -> nn.Module:
    from pytorch_metric_learning import losses

    return losses.HistogramLoss(n_bins=ours.bins - 1)  # type: ignore[no-any-return]


def _nca(ours: Any) -> nn.Module:
    from pytorch_metric_learning import losses

    return losses.NCALoss(distance=_as_given(2))  # type: ignore[no-any-return]


def _normalized_softmax(ours: Any) -> nn.Module:
    from pytorch_metric_learning import losses

    classes, dim = ours.weight.shape
    peer = losses.NormalizedSoftmaxLoss(classes, dim, temperature=1 / ours.scale)
    return _copied(peer, "W", ours.weight.T)


def _arcface(ours: Any) -> nn.Module:
    from pytorch_metric_learning import losses

    options = {"margin": math.degrees(ours.margin), "scale": ours.scale}
    peer = losses.ArcFaceLoss(*ours.weight.shape, **options)
    return _copied(peer, "W", ours.weight.T)


def _cosface(ours: Any) -> nn.Module:
    from pytorch_metric_learning import losses

    peer = losses.CosFaceLoss(*ours.weight.shape, margin=ours.margin, scale=ours.scale)
    return _copied(peer, "W", ours.weight.T)


def _sphereface(ours: Any) -> nn.Module:
    from pytorch_metric_learning import losses

    peer = losses.SphereFaceLoss(*ours.weight.shape, margin=ours.multiplier)
    return _copied(peer, "W", ours.weight.T)


def _sub_center_arcface(ours: Any) -> nn.Module:
    from pytorch_metric_learning import losses

    classes, centers, dim = ours.centers.shape
    options = {"margin": math.degrees(ours.margin), "scale": ours.scale, "sub_centers": centers}
    peer = losses.SubCenterArcFaceLoss(num_classes=classes, embedding_size=dim, **options)
    return _copied(peer, "W", ours.centers.flatten(0, 1).T)


def _soft_triple(ours: Any) -> nn.Module:
    from pytorch_metric_learning import losses

    classes, centers, dim = ours.centers.shape
    options = {"la": ours.scale, "gamma": ours.gamma, "margin": ours.margin}
    peer = losses.SoftTripleLoss(classes, dim, centers_per_class=centers, **options)
    return _copied(peer, "fc", ours.centers.flatten(0, 1).T)


def _supcon(ours: Any) -> nn.Module:
    from pytorch_metric_learning import losses

    return losses.SupConLoss(temperature=ours.temperature)  # type: ignore[no-any-return]


def _nt_xent(ours: Any) -> nn.Module:
    from pytorch_metric_learning import losses

    return losses.NTXentLoss(temperature=ours.temperature)  # type: ignore[no-any-return]


def _tuplet_margin(ours: Any) -> nn.Module:
    from pytorch_metric_learning import losses

    return losses.TupletMarginLoss(  # type: ignore[no-any-return]
        margin=math.degrees(ours.slack), scale=ours.scale
    )


def _fast_ap(ours: Any) -> nn.Module:
    from pytorch_metric_learning import losses

    return losses.FastAPLoss(num_bins=ours.bins)  # type: ignore[no-any-return]


def _ranked_list(ours: Any) -> nn.Module:
    from pytorch_metric_learning import losses

    return losses.RankedListLoss(  # type: ignore[no-any-return]
        margin=ours.margin,
        Tn=ours.temperature,
        imbalance=ours.balance,
        alpha=ours.boundary,
    )


def _info_nce(ours: Any) -> nn.Module:
    from pytorch_metric_learning import losses

    loss = losses.NTXentLoss(temperature=ours.loss.temperature)
    return TwoViews(losses.SelfSupervisedLoss(loss, symmetric=False))


class _AsReference(nn.Module):
    """A loss of PML that takes the second table as `ref_emb`."""

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        return self.loss(first, ref_emb=second)  # type: ignore[no-any-return]


def _vicreg(ours: Any) -> nn.Module:
    from pytorch_metric_learning import losses

    vicreg = ours.loss
    return TwoViews(
        _AsReference(
            losses.VICRegLoss(
                invariance_lambda=vicreg.invariance,
                variance_mu=vicreg.variance,
                covariance_v=vicreg.covariance,
                eps=vicreg.eps,
            )
        )
    )


def _smooth_ap(ours: Any) -> nn.Module:
    from pytorch_metric_learning import losses

    return losses.SmoothAPLoss(temperature=ours.temperature)  # type: ignore[no-any-return]


def _copied(peer: nn.Module, name: str, values: Tensor) -> nn.Module:
    with torch.no_grad():
        peer.get_parameter(name).copy_(values)
    return peer


# By the name of our case in losses.py.
PEERS: dict[str, Peer] = {
    "triplet_all": Peer("TripletMarginLoss", _plain_triplet),
    "triplet_semi_hard": Peer(
        "TripletMarginLoss + TripletMarginMiner(semihard)",
        _semi_hard_triplet,
        "all negatives between the positive and the margin; ours: the nearest of them, "
        "or the farthest negative",
    ),
    "triplet_batch_hard": Peer("TripletMarginLoss + BatchHardMiner", _batch_hard_triplet),
    "contrastive": Peer("ContrastiveLoss", _contrastive),
    "lifted_structure": Peer("LiftedStructureLoss", _lifted_structure),
    "n_pair_first": Peer("NPairsLoss", _n_pair),
    "n_pair": Peer(
        "NPairsLoss",
        _n_pair,
        "one anchor and one negative a class: a sixteenth of the pairs that ours takes",
    ),
    "angular": Peer(
        "AngularLoss",
        _angular,
        "every positive pair, anchors scaled to length 1; ours: one positive a sample, as given",
    ),
    "proxy_nca": Peer("ProxyNCALoss", _proxy_nca),
    "proxy_anchor": Peer("ProxyAnchorLoss", _proxy_anchor),
    "multi_similarity": Peer(
        "MultiSimilarityLoss + MultiSimilarityMiner",
        _multi_similarity,
        "an anchor with only positives or only negatives left by the miner counts; ours: term 0",
    ),
    "circle": Peer("CircleLoss", _circle),
    "margin": Peer(
        "MarginLoss(learn_beta) + DistanceWeightedMiner",
        _margin,
        "draws positives too, a group's size of triplets an anchor; ours: one for each positive",
    ),
    "histogram": Peer("HistogramLoss", _histogram),
    "supcon": Peer("SupConLoss", _supcon),
    "nt_xent": Peer("NTXentLoss", _nt_xent),
    "tuplet_margin": Peer("TupletMarginLoss", _tuplet_margin),
    "fast_ap": Peer("FastAPLoss", _fast_ap),
    "smooth_ap": Peer(
        "SmoothAPLoss",
        _smooth_ap,
        "a sample is the first positive of its own ranking; ours: left out",
    ),
    "ranked_list": Peer(
        "RankedListLoss",
        _ranked_list,
        "weights of negatives take part in the gradient and do not sum to 1; ours: constants",
    ),
    "info_nce": Peer("SelfSupervisedLoss(NTXentLoss), not symmetric", _info_nce),
    "vicreg": Peer("VICRegLoss", _vicreg),
    "arcface": Peer("ArcFaceLoss", _arcface),
    "cosface": Peer("CosFaceLoss", _cosface),
    "sphereface": Peer("SphereFaceLoss", _sphereface),
    "sub_center_arcface": Peer("SubCenterArcFaceLoss", _sub_center_arcface),
    "soft_triple": Peer("SoftTripleLoss", _soft_triple),
    "nca": Peer("NCALoss", _nca),
    "normalized_softmax": Peer(
        "NormalizedSoftmaxLoss",
        _normalized_softmax,
    ),
}
