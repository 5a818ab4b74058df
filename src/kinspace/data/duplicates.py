"""Find pictures that are the same, or nearly: resized, re-encoded, a little lighter.

Two pictures match if their 16 x 16 thumbnails differ by an RMS of at most 8 of 255 levels, and of
at most 1/5 of the smaller contrast of the two (so that pale pictures are not all alike).
The search is exact: the RMS of 8 x 8 gray block means is never more than that of the thumbnails,
nor is the difference along one direction, so both exclude pairs without missing any. Pictures are
sorted along their principal direction, and only those close enough on it are compared.
A mirrored, turned or cropped copy is another picture.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

__all__ = ["THUMBNAIL", "find_groups", "matching_pairs"]

THUMBNAIL = 16  # pixels a side
MOST_DIFFERENCE = 8.0  # RMS over the thumbnail, in levels of 255
MOST_OF_CONTRAST = 0.2
_BLOCK = 512  # rows compared at a time
_PAIRS = 4096  # pairs compared exactly at a time

Floats = NDArray[np.float32]


def find_groups(digests: list[bytes], thumbnails: NDArray[np.uint8]) -> list[list[int]]:
    """Groups of two or more pictures that match, directly or through others of the group.

    >>> rng = np.random.default_rng(0)
    >>> thumbnails = rng.integers(0, 256, (3, 16, 16, 3), dtype=np.uint8)
    >>> thumbnails[2] = thumbnails[0] // 2 * 2
    >>> find_groups([b"a", b"b", b"c"], thumbnails)
    [[0, 2]]
    """
    parent = list(range(len(digests)))

    def root(index: int) -> int:
        while parent[index] != index:
            parent[index] = parent[parent[index]]
            index = parent[index]
        return index

    first: dict[bytes, int] = {}
    for index, digest in enumerate(digests):
        parent[index] = first.setdefault(digest, index)
    kept = np.array(sorted(first.values()), dtype=np.int64)  # one of each content
    for a, b in matching_pairs(thumbnails[kept]):
        one, other = sorted((root(int(kept[a])), root(int(kept[b]))))
        parent[other] = one
    groups: dict[int, list[int]] = {}
    for index in range(len(digests)):
        groups.setdefault(root(index), []).append(index)
    return [group for group in groups.values() if len(group) > 1]


def matching_pairs(thumbnails: NDArray[np.uint8]) -> Iterator[tuple[int, int]]:
    """Pairs of places whose thumbnails match.

    >>> thumbnails = np.random.default_rng(0).integers(0, 256, (2, 16, 16, 3), dtype=np.uint8)
    >>> list(matching_pairs(thumbnails[[0, 1, 0]]))
    [(0, 2)]
    """
    count = len(thumbnails)
    if count < 2:
        return
    flat = thumbnails.reshape(count, -1).astype(np.float32)  # (pictures, 768)
    limits = np.minimum(MOST_DIFFERENCE, MOST_OF_CONTRAST * _contrast(flat))
    coarse = _block_means(thumbnails)  # (pictures, 64)
    along, order = _sorted_along(coarse)
    coarse, limits, flat = coarse[order], limits[order], flat[order]
    reach = limits * np.sqrt(coarse.shape[1])
    squares = (coarse**2).sum(axis=1)
    for start in range(0, count, _BLOCK):
        rows = slice(start, start + _BLOCK)
        end = int(np.searchsorted(along, along[rows][-1] + reach[rows].max() + 1, side="right"))
        columns = slice(start, end)
        distances = squares[rows, None] + squares[columns] - 2 * coarse[rows] @ coarse[columns].T
        # the product of large norms is rounded; the tolerance keeps pairs for the exact test
        near = distances <= np.minimum(reach[rows, None], reach[columns]) ** 2 + 4
        a, b = np.stack(np.nonzero(np.triu(near, k=1))) + start  # both count from start
        for i, j in _confirmed(flat, limits, a, b):
            yield int(order[i]), int(order[j])


def _confirmed(
    flat: Floats, limits: Floats, a: NDArray[np.int64], b: NDArray[np.int64]
) -> Iterator[tuple[int, int]]:
    """The pairs that match in all of the thumbnail."""
    for start in range(0, len(a), _PAIRS):
        one, other = a[start : start + _PAIRS], b[start : start + _PAIRS]
        differences = np.sqrt(((flat[one] - flat[other]) ** 2).mean(axis=1))
        same = differences <= np.minimum(limits[one], limits[other])
        yield from zip(one[same].tolist(), other[same].tolist(), strict=True)


def _contrast(flat: Floats) -> Floats:
    """The standard deviation of each thumbnail about its mean color."""
    pixels = flat.reshape(len(flat), -1, 3)
    centered = pixels - pixels.mean(axis=1, keepdims=True)
    contrast: Floats = np.sqrt((centered**2).mean(axis=(1, 2)))
    return contrast


def _block_means(thumbnails: NDArray[np.uint8]) -> Floats:
    """Gray means of 2 x 2 pixels, centered over all pictures, (pictures, 64)."""
    half = THUMBNAIL // 2
    blocks = thumbnails.reshape(-1, half, 2, half, 2, 3).mean(axis=(2, 4, 5), dtype=np.float32)
    means: Floats = blocks.reshape(len(thumbnails), -1)
    means -= means.mean(axis=0)
    return means


def _sorted_along(coarse: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """Each picture's place along the direction in which they differ most, and their order."""
    _, directions = np.linalg.eigh(coarse.T @ coarse)
    along = coarse @ directions[:, -1]
    order = np.argsort(along, kind="stable")
    return along[order], order
