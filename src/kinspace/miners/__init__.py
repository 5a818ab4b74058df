"""Which pairs and triplets of a batch to use: plain functions, no state.

All take embeddings and labels, and a reference where positives and negatives come from one. They
return indices: triplets (T, 3) of anchor, positive and negative, or pairs (P, 2). `MINERS` maps
names to functions. A miner with options is `functools.partial(pair_margin, negative_margin=0.5)`.
"""

from collections.abc import Callable

from torch import Tensor

from kinspace.miners.angular import angular
from kinspace.miners.batch_hard import batch_hard
from kinspace.miners.counts import mined_counts
from kinspace.miners.disjoint import disjoint
from kinspace.miners.distance_weighted import distance_weighted, distance_weights
from kinspace.miners.easy_positive import easy_positive
from kinspace.miners.hardest_of_class import hardest_of_class
from kinspace.miners.hardest_pairs import hardest_pairs
from kinspace.miners.multi_similarity import multi_similarity
from kinspace.miners.pair_margin import pair_margin
from kinspace.miners.semi_hard import semi_hard
from kinspace.miners.triplet_margin import triplet_margin

__all__ = [
    "MINERS",
    "angular",
    "batch_hard",
    "disjoint",
    "distance_weighted",
    "distance_weights",
    "easy_positive",
    "hardest_of_class",
    "hardest_pairs",
    "mined_counts",
    "multi_similarity",
    "pair_margin",
    "semi_hard",
    "triplet_margin",
]

MINERS: dict[str, Callable[..., Tensor]] = {
    "angular": angular,
    "batch_hard": batch_hard,
    "disjoint": disjoint,
    "distance_weighted": distance_weighted,
    "easy_positive": easy_positive,
    "hardest_of_class": hardest_of_class,
    "hardest_pairs": hardest_pairs,
    "multi_similarity": multi_similarity,
    "pair_margin": pair_margin,
    "semi_hard": semi_hard,
    "triplet_margin": triplet_margin,
}
