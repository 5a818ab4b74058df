"""Exact k nearest neighbors: ordered by similarity, then by lower index.

The candidates come from float32 similarities, in blocks, and their order from exact ones. Where the
bound of the float32 error does not rule out the rest of the gallery, the whole row is computed
exactly (see `kinspace.evaluation.similarity`). The c largest entries of a row are within the c
groups of columns with the largest maxima, so only these groups are sorted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from kinspace._core import checks
from kinspace.evaluation.similarity import Rows, Space, in_range

__all__ = ["nearest", "nearest_blocks"]

BLOCK = {"cpu": 2**23, "cuda": 2**28}  # numbers in a block of similarities
SPARE = 8  # candidates beyond k
GROUP = 64  # columns


def nearest(
    vectors: Tensor, k: int, *, gallery: Tensor | None = None, metric: str = "cosine"
) -> tuple[Tensor, Tensor]:
    """Similarity (float64) and index of the k nearest in the gallery, (rows, k), nearest first.

    Without a gallery: the k nearest other vectors. k is limited to the number of candidates.
    Similarities are cosines, or negative squared distances for "euclidean".

    >>> nearest(torch.tensor([[0.0], [1.0], [3.0]]), 1, metric="euclidean")
    (tensor([[-1.],
            [-1.],
            [-4.]], dtype=torch.float64), tensor([[1],
            [0],
            [1]]))
    """
    found = list(nearest_blocks(vectors, k, gallery=gallery, metric=metric))
    return torch.cat([values for values, _ in found]), torch.cat([index for _, index in found])


def nearest_blocks(
    vectors: Tensor, k: int, *, gallery: Tensor | None = None, metric: str = "cosine"
) -> Iterator[tuple[Tensor, Tensor]]:
    """The same as an iterator over blocks of rows."""
    itself = gallery is None
    vectors, others = in_range(vectors, vectors if gallery is None else gallery)
    k = min(checks.integer("k", k, at_least=1), len(others) - itself)
    space = Space(metric, others)
    rows = space.rows(others)
    queries = rows if itself else space.rows(vectors)
    step = max(1, BLOCK.get(vectors.device.type, BLOCK["cpu"]) // len(others))
    for at in range(0, len(vectors), step):
        part = torch.arange(at, min(at + step, len(vectors)), device=vectors.device)
        yield _block(space, queries, rows, part, k, itself)


def _block(
    space: Space, queries: Rows, gallery: Rows, part: Tensor, k: int, itself: bool
) -> tuple[Tensor, Tensor]:
    with torch.autocast(part.device.type, enabled=False):
        table = queries.fast[part] @ gallery.fast.T
    if gallery.bias is not None:
        table += gallery.bias
    own = part[:, None] if itself else None
    if own is not None:
        table.scatter_(1, own, -math.inf)
    count = min(k + SPARE, len(gallery) - itself)
    rough, index = _largest(table, count)
    rows = part[:, None].expand_as(index)
    exact = space.pairs(queries, rows.flatten(), gallery, index.flatten()).view_as(rough)
    exact, index = (found[:, :k] for found in space.ordered(exact, index))
    if count < len(gallery) - itself and k:
        cut, margin = space.screen(queries.length[part], exact[:, -1])
        crowded = (rough[:, -1].double() >= cut - margin).nonzero()[:, 0]
        step = max(1, 2**22 // len(gallery))
        for some in (crowded[at : at + step] for at in range(0, len(crowded), step)):
            whole = space.table(queries, part[some], gallery, slice(None))
            if own is not None:
                whole.scatter_(1, own[some], -math.inf)
            places = torch.arange(len(gallery), device=part.device).expand_as(whole)
            whole, places = space.ordered(whole, places)
            exact[some], index[some] = whole[:, :k], places[:, :k]
    return exact, index


def _largest(table: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest of each row in descending order, and their columns."""
    rows, columns = table.shape
    groups = columns // GROUP
    if groups < 4 * count:  # nothing to gain
        return table.topk(count, dim=1)
    whole = groups * GROUP
    tops = table[:, :whole].unflatten(1, (groups, GROUP)).amax(2)
    best = tops.topk(count, dim=1, sorted=False).indices * GROUP
    steps = torch.arange(GROUP, device=table.device)
    rest = torch.arange(whole, columns, device=table.device).expand(rows, -1)
    candidates = torch.cat([(best[:, :, None] + steps).flatten(1), rest], 1)
    values, places = table.gather(1, candidates).topk(count, dim=1)
    return values, candidates.gather(1, places)
