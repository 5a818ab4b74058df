"""A map of embeddings in two dimensions: neighbors in the embedding are neighbors on the map.

t-SNE (van der Maaten and Hinton, 2008) of the vectors normalized to length 1, after a PCA to 50
dimensions. Distances between groups and sizes of groups have no meaning on such a map.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kinspace._core.vectors import unit
from kinspace.data.pictures import Pictures
from kinspace.embeddings import EmbeddingTable
from kinspace.evaluation.similarity import nearest
from kinspace.web import data_uri, sheet_jpeg, tile_side

__all__ = ["layout", "map_data"]

POINTS = 5000
DIMENSIONS = 50
NEIGHBORS = 6
ANGLE = 0.7  # of Barnes-Hut: half the time of 0.5, for a divergence 0.2 % higher


def layout(vectors: NDArray[Any], *, seed: int = 0) -> NDArray[np.float64]:
    """Positions (rows, 2) from 0 to 1; the same for the same seed.

    >>> x = np.random.default_rng(0).standard_normal((20, 8))
    >>> places = layout(x)
    >>> places.shape, places.min() >= 0, places.max() <= 1
    ((20, 2), np.True_, np.True_)
    """
    from sklearn.decomposition import PCA  # takes a second to import
    from sklearn.manifold import TSNE

    points = unit(torch.from_numpy(vectors).double()).numpy()
    points = points - points.mean(0)
    if len(points) < 4 or np.ptp(points, axis=0).max() < 1e-12:
        spread = np.linspace(0, 1, len(points))
        return np.stack([spread, np.full(len(points), 0.5)], 1)
    size = min(DIMENSIONS, *points.shape)
    points = PCA(size, svd_solver="full", random_state=seed).fit_transform(points)
    if points.shape[1] < 2:
        places = np.pad(points, ((0, 0), (0, 1)))
    else:
        perplexity = min(30.0, (len(points) - 1) / 3)
        places = TSNE(
            perplexity=perplexity,
            init="pca",
            learning_rate="auto",
            random_state=seed,
            angle=ANGLE,
        ).fit_transform(points)
    low = places.min(0)
    span = float((places.max(0) - low).max()) or 1.0
    middle = (1 - (places.max(0) - low) / span) / 2
    scaled: NDArray[np.float64] = ((places - low) / span + middle).astype(np.float64)
    return scaled.clip(0, 1)


def map_data(
    table: EmbeddingTable, pictures: Pictures | None, *, seed: int = 0, points: int = POINTS
) -> dict[str, Any]:
    """The data of the page's map: positions, classes, names, neighbors and a sheet of pictures.

    Of a table with more rows than `points`, a random sample of that size is shown. classes is None
    for a table without classes.
    """
    rows = np.arange(len(table))
    if len(rows) > points:
        rows = np.sort(np.random.default_rng(seed).permutation(len(rows))[:points])
    part = table.select(rows)
    places = layout(part.vectors, seed=seed)
    near, index = nearest(torch.from_numpy(part.vectors), min(NEIGHBORS, len(part) - 1))
    shown, numbers = np.empty(0, np.int64), None
    if part.labels is not None:
        shown, numbers = np.unique(part.labels, return_inverse=True)
    columns = math.isqrt(len(part) - 1) + 1
    side = tile_side(len(part))
    uri = None
    if pictures is not None:
        sheet, side = sheet_jpeg(pictures, rows.tolist(), columns=columns, side=side)
        uri = data_uri(sheet)
    return {
        "x": (places[:, 0] * 10_000).round().astype(int).tolist(),
        "y": (places[:, 1] * 10_000).round().astype(int).tolist(),
        "classes": None if numbers is None else numbers.tolist(),
        "names": [table.class_name(label) for label in shown.tolist()],
        "ids": list(part.ids),
        "neighbors": index.tolist(),
        "similarities": near.numpy().round(3).tolist(),
        "sheet": uri,
        "columns": columns,
        "side": side,
        "of": len(table),
    }
