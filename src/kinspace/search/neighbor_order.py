"""The order in which the neighbors of a query are shown, which can look at more than cosines.

    none              by their cosine
    query_expansion   by the cosine to the query plus its three nearest, each times its own cosine
                      to the power 3
    k_reciprocal      by the neighbors that the query and each of them share

Both others look at the nearest hundred (`query_expansion` has the formulas) and change their order
only: cosines, the class of a picture, its confidence and the thresholds stay those of the nearest.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from kinspace._core import checks
from kinspace.search.query_expansion import expand_queries, k_reciprocal_distances

__all__ = ["POOL", "RERANKINGS", "neighbor_order"]

RERANKINGS = ("none", "query_expansion", "k_reciprocal")
POOL = 100  # of the nearest, put in another order
EXPANDED_BY = 3  # of the nearest


def neighbor_order(
    rerank: str, query: NDArray[np.float32], vectors: NDArray[np.float32]
) -> NDArray[np.int64]:
    """The places of the nearest vectors (n, dim) of a query (dim,) in the order to show.

    vectors: nearest first.

    >>> near = np.array([[0.8, 0.6], [0.7, -0.71], [0.69, 0.72], [0.6, 0.8]])
    >>> neighbor_order("query_expansion", np.array([1.0, 0.0]), near)
    array([0, 2, 3, 1])
    """
    checks.choice("rerank", rerank, RERANKINGS)
    found, one = torch.from_numpy(vectors).float(), torch.from_numpy(query[None]).float()
    if rerank == "none" or len(found) < 2:
        return np.arange(len(found))
    if rerank == "query_expansion":
        expanded = expand_queries(one, found, neighbors=min(EXPANDED_BY, len(found)))
        distances = -(torch.nn.functional.normalize(found) @ expanded[0]).numpy()
    else:
        distances = k_reciprocal_distances(one, found)[0]
    order: NDArray[np.int64] = np.argsort(distances, kind="stable")
    return order
