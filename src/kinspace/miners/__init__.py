"""Which pairs and triplets of a batch to use: plain functions, no state."""

from kinspace.miners.batch_hard import batch_hard
from kinspace.miners.disjoint import disjoint
from kinspace.miners.distance_weighted import distance_weighted, distance_weights
from kinspace.miners.multi_similarity import multi_similarity
from kinspace.miners.semi_hard import semi_hard

__all__ = [
    "batch_hard",
    "disjoint",
    "distance_weighted",
    "distance_weights",
    "multi_similarity",
    "semi_hard",
]
