"""K-means within every class at once, and Magnet's cluster index built on it."""

from kinspace.clustering.cluster_index import (
    ClusterIndex,
    nearest_impostors,
    seed_probabilities,
)
from kinspace.clustering.kmeans import ClassClusters, class_kmeans

__all__ = [
    "ClassClusters",
    "ClusterIndex",
    "class_kmeans",
    "nearest_impostors",
    "seed_probabilities",
]
