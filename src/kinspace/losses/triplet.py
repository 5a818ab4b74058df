"""Triplet loss over all triplets, semi-hard, batch-hard or disjoint ones.

    hinge(a, p, n) = max(0, D_ap - D_an + margin),   D squared unless squared=False, or `distance`

- "all": every anchor, positive and negative of the batch; reduction "sum", "mean" over all
  triplets, or "mean_active" over those above 0.
- "semi_hard": for each ordered pair (a, p) the nearest negative farther than p, or the farthest
  negative if none is; mean over these pairs. Schroff et al., FaceNet, CVPR 2015.
- "batch_hard": for each anchor its farthest positive and nearest negative; mean over the anchors
  that have both. Hermans et al. 2017.
- "disjoint": a third of the batch as anchors, no sample in two triplets; mean over these. How
  triplets were drawn one by one, as what Magnet and others compare themselves with.
- a miner: any function of embeddings and labels that returns triplets (T, 3) or pairs (P, 2), such
  as those of `kinspace.miners`; or given `triplets` or `pairs`, which make all triplets of a same
  and a different pair with one anchor; reduced like "all".

DML-DA paper Eq. 3. The sum over all triplets takes no table of them (`all_triplets.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

from torch import Tensor, nn

from kinspace._core import checks
from kinspace._core.class_index import ClassIndex
from kinspace._core.distances import DISTANCES, distance_table, listed_distances
from kinspace._core.options import keep_options, kept_options, options_repr, takes_options
from kinspace._core.references import (
    Miner,
    checked_miner,
    compared,
    given_triplets,
    mined_triplets,
)
from kinspace._core.samples import Anchors, Chosen, Labels, anchor_weights, takes_weights
from kinspace._core.tensor_ops import reduce_hinges
from kinspace.losses.all_triplets import all_triplets
from kinspace.miners.batch_hard import hardest
from kinspace.miners.disjoint import disjoint_triplets
from kinspace.miners.semi_hard import semi_hard_negatives

__all__ = ["Triplet", "triplet_loss"]

REDUCTIONS = ("mean", "mean_active", "sum")


def _semi_hard(distances: Tensor, index: ClassIndex) -> tuple[Tensor, Tensor, Tensor]:
    members, positive = index.positives
    negative, has_negative = semi_hard_negatives(distances, members)
    return members, negative, positive & has_negative[:, None]


# indices of positives and of negatives, and which are used: (batch, some) or (batch,) each
MINERS: dict[str, Callable[[Tensor, ClassIndex], tuple[Tensor, Tensor, Tensor]]] = {
    "semi_hard": _semi_hard,
    "batch_hard": hardest,
    "disjoint": lambda distances, index: disjoint_triplets(index),
}
MININGS = ("all", *MINERS)


@takes_weights
@takes_options(
    margin=checks.number,
    mining=lambda name, value: checked_miner(name, value, MININGS),
    reduction=checks.one_of(REDUCTIONS),
    distance=checks.or_none(checks.one_of(DISTANCES)),
)
def triplet_loss(  # noqa: PLR0913 (an option each)
    embeddings: Tensor,
    labels: Labels,
    *,
    margin: float = 1.0,
    mining: str | Miner = "all",
    reduction: str = "mean",
    squared: bool = True,
    distance: str | None = None,
    pairs: Tensor | None = None,
    triplets: Tensor | None = None,
    reference: Tensor | None = None,
    reference_labels: Labels | None = None,
    includes_batch: bool = False,
    **samples: Unpack[Anchors],
) -> Tensor:
    """Triplet loss (module docstring).

    Triplets (0, 1, 2) and (1, 0, 2) have 1 - 9 + 1 < 0 and 1 - 4 + 1 < 0; with margin 4 the
    second gives 1 - 4 + 4 = 1 and the first 0.

    >>> import torch
    >>> x = torch.tensor([[0.0], [1.0], [3.0]])
    >>> triplet_loss(x, torch.tensor([0, 0, 1]), margin=4.0)
    tensor(0.5000)
    """
    reference, index = compared(embeddings, labels, reference, reference_labels, includes_batch)
    weights = anchor_weights(samples)
    distance = distance or ("squared_euclidean" if squared else "euclidean")
    triplets = given_triplets(pairs, triplets, index)
    if triplets is None and not isinstance(mining, str):
        triplets = mined_triplets(mining, embeddings, reference, index)
    if triplets is not None:
        anchor, positive, negative = triplets.unbind(1)
        near, far = (
            listed_distances(embeddings, anchor, other, reference, distance=distance)
            for other in (positive, negative)
        )
        weights = None if weights is None else weights[anchor]
        return reduce_hinges(near - far + margin, reduction, weights=weights)
    distances = distance_table(embeddings, reference, distance=distance)  # (batch, batch)
    if mining == "all":
        return all_triplets(distances, index, margin, reduction, weights)
    found = MINERS[str(mining)](distances.detach(), index)
    positive, negative, used = (each.view(len(distances), -1) for each in found)  # (batch, some)
    beyond = distances.gather(1, positive) - distances.gather(1, negative) + margin
    weights = None if weights is None else weights[:, None].expand_as(beyond)
    return reduce_hinges(beyond, "mean", used=used, weights=weights)


class Triplet(nn.Module):
    """`triplet_loss` as a module.

    >>> Triplet(mining="semi_hard", margin=0.2)
    Triplet(margin=0.2, mining='semi_hard', reduction='mean', squared=True, distance=None)
    """

    __call__: Callable[..., Tensor]
    margin: float
    mining: str | Miner
    extra_repr = options_repr

    def __init__(
        self,
        *,
        margin: float = 1.0,
        mining: str | Miner = "all",
        reduction: str = "mean",
        squared: bool = True,
        distance: str | None = None,
    ) -> None:
        super().__init__()
        keep_options(
            self, triplet_loss, margin=margin, mining=mining, reduction=reduction, squared=squared,
            distance=distance,
        )  # fmt: skip

    def forward(self, embeddings: Tensor, labels: Labels, **inputs: Unpack[Chosen]) -> Tensor:
        return triplet_loss(embeddings, labels, **kept_options(self), **inputs)
