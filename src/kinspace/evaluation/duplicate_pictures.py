"""Pictures that are the same, or copies: resized, encoded again, lighter, mirrored or turned.

Candidates are the pairs that the thumbnails (`kinspace.data.duplicates`) or the embeddings find
near. A trained embedding puts all pictures of a class near each other, so that no pair is a copy by
its cosine alone: the pixels decide. Of both pictures, at 64 x 64, in one of the eight ways to turn
and mirror the second, with a brightness and contrast fitted by least squares,

    min over gain, offset of  |a - (gain b + offset)|^2

the root mean square that is left is at most 1/4 of the contrast (the standard deviation) of the
first, and in no block of 8 x 8 pixels more than 24 of 255 levels: a copy differs a little
everywhere, another picture of the same place in some blocks and much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from kinspace.data.dataset import Dataset
from kinspace.data.duplicates import THUMBNAIL, matching_pairs
from kinspace.data.pictures import Pictures, UnreadablePicture
from kinspace.data.validation import PictureInfo, inspect_pictures
from kinspace.evaluation.similarity import nearest

__all__ = ["DuplicatePair", "find_duplicates"]

SIDE, BLOCK = 64, 8
MOST_LEFT, MOST_IN_BLOCK = 0.25, 24.0
GAINS = (0.6, 1.7)
LEAST_CONTRAST = 2.0  # levels: a picture of one color has copies by its digest alone
MIDDLE, LEVEL = 128, 40  # mean and standard deviation of thumbnails that are compared
NEIGHBORS = 8  # of each embedding, looked at
COARSE = 0.6  # of the contrast: thumbnails that differ more are of no copy
KEPT = 4096  # pictures of 64 x 64, 24 kB each as bytes and 8 times that in use
PAIRS = 2048  # compared by their thumbnails at a time


@dataclass(frozen=True)
class DuplicatePair:
    """Two pictures of which one is a copy of the other.

    kind: "same" pixels, a "copy", or one that is "turned" or mirrored. difference: the root mean
    square that is left, of 255 levels. similarity: the cosine of the embeddings, if there are any.
    """

    first: int
    second: int
    kind: str
    difference: float
    similarity: float | None = None


def find_duplicates(
    dataset: Dataset | Pictures,
    vectors: NDArray[Any] | None = None,
    *,
    workers: int | None = None,
    progress: Callable[[int, int], object] | None = None,
) -> list[DuplicatePair]:
    """All pairs of copies among pictures, the same ones first; none for pictures not readable.

    vectors: the embeddings of the pictures, which find copies that are mirrored or turned.
    workers, progress: as for `kinspace.data.check`.

    >>> from kinspace.data.pictures import ArrayPictures
    >>> x = np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3)).astype(np.uint8)
    >>> x[2] = x[0] // 4 * 4
    >>> [(pair.first, pair.second, pair.kind) for pair in find_duplicates(ArrayPictures(x))]
    [(0, 2, 'copy')]
    """
    pictures = dataset.pictures if isinstance(dataset, Dataset) else dataset
    if vectors is not None and len(vectors) != len(pictures):
        raise ValueError(
            f"vectors: expected one for each of {len(pictures)} pictures, got {len(vectors)}"
        )
    report = progress or (lambda done, total: None)
    infos = inspect_pictures(
        pictures, workers=workers, progress=lambda a, b: (report(a, b), None)[1]
    )
    good = [place for place, info in enumerate(infos) if isinstance(info, PictureInfo)]
    seen = [info for info in infos if isinstance(info, PictureInfo)]
    if len(good) < 2:
        return []
    raw = np.frombuffer(b"".join(info.thumbnail for info in seen), np.uint8)
    thumbnails = raw.reshape(-1, THUMBNAIL, THUMBNAIL, 3)
    digests = [info.digest for info in seen]
    own = None if vectors is None else _unit(np.asarray(vectors)[good])
    found = [
        DuplicatePair(good[i], good[j], kind, difference, _cosine(own, i, j))
        for i, j, kind, difference in _pairs(pictures, good, digests, thumbnails, own)
    ]
    order = {"same": 0, "copy": 1, "turned": 2}
    return sorted(found, key=lambda p: (order[p.kind], p.difference, p.first, p.second))


def _pairs(
    pictures: Pictures,
    good: list[int],
    digests: list[bytes],
    thumbnails: NDArray[np.uint8],
    vectors: NDArray[np.float32] | None,
) -> Iterator[tuple[int, int, str, float]]:
    first: dict[bytes, int] = {}
    for place, digest in enumerate(digests):
        if first.setdefault(digest, place) != place:
            yield first[digest], place, "same", 0.0
    kept = np.array(sorted(first.values()), np.int64)  # one of each content
    leveled = _leveled(thumbnails[kept])
    candidates = {(int(kept[i]), int(kept[j])) for i, j in matching_pairs(leveled)}
    if vectors is not None and len(kept) > 1:
        candidates |= _near(vectors[kept], thumbnails[kept], kept)

    @lru_cache(KEPT)
    def small(place: int) -> NDArray[np.uint8] | None:
        try:
            picture = pictures.read(good[place])
        except UnreadablePicture:  # it was readable a moment ago
            return None
        return np.asarray(picture.resize((SIDE, SIDE), Image.Resampling.BOX))

    for i, j in sorted({(min(pair), max(pair)) for pair in candidates}):
        a, b = small(i), small(j)
        if a is None or b is None:
            continue
        compared = _compared(a.astype(np.float32), b.astype(np.float32))
        if compared is not None:
            yield i, j, *compared


def _leveled(thumbnails: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The thumbnails with one brightness and contrast, so that a lighter copy matches too."""
    leveled = MIDDLE + LEVEL * _standardized(thumbnails.astype(np.float32))
    return leveled.clip(0, 255).round().astype(np.uint8)


def _near(
    vectors: NDArray[np.float32], thumbnails: NDArray[np.uint8], places: NDArray[np.int64]
) -> set[tuple[int, int]]:
    """Pairs of near embeddings whose thumbnails are alike in one of the eight ways."""
    near = nearest(torch.from_numpy(vectors), min(NEIGHBORS, len(vectors) - 1))[1].numpy()
    rows = np.repeat(np.arange(len(vectors)), near.shape[1])
    pairs = np.unique(np.sort(np.stack([rows, near.ravel()], 1), axis=1), axis=0)
    flat = thumbnails.astype(np.float32)
    found: set[tuple[int, int]] = set()
    for at in range(0, len(pairs), PAIRS):
        i, j = pairs[at : at + PAIRS].T
        a = _standardized(flat[i])
        alike = np.zeros(len(i), bool)
        for turned in _turned(flat[j]):
            # of standardized pictures |a - b|^2 = 2 - 2 correlation
            alike |= 2 - 2 * (a * _standardized(turned)).mean((1, 2, 3)) <= COARSE**2
        found |= {(int(places[x]), int(places[y])) for x, y in zip(i[alike], j[alike], strict=True)}
    return found


def _turned(pictures: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    """Pictures (many, side, side, 3), as they are and turned and mirrored."""
    for mirrored in (pictures, pictures[:, :, ::-1]):
        for quarter in range(4):
            yield np.rot90(mirrored, quarter, axes=(1, 2))


def _standardized(pictures: NDArray[np.float32]) -> NDArray[np.float32]:
    centered = pictures - pictures.mean((1, 2, 3), keepdims=True)
    deviation = np.sqrt((centered**2).mean((1, 2, 3), keepdims=True))
    standardized: NDArray[np.float32] = centered / np.maximum(deviation, 1e-3)
    return standardized


def _compared(a: NDArray[np.float32], b: NDArray[np.float32]) -> tuple[str, float] | None:
    """The kind of copy that b is of a, and what is left; None if it is none."""
    centered = a - a.mean()
    contrast = float(np.sqrt((centered**2).mean()))
    if contrast < LEAST_CONTRAST:
        return None
    best: tuple[float, str] | None = None
    for number, [turned] in enumerate(_turned(b[None])):
        other = turned - turned.mean()
        variance = float((other**2).mean())
        gain = float((centered * other).mean()) / max(variance, 1e-6)
        left = centered - gain * other
        difference = float(np.sqrt((left**2).mean()))
        if not GAINS[0] <= gain <= GAINS[1] or difference > MOST_LEFT * contrast:
            continue
        blocks = (left**2).reshape(SIDE // BLOCK, BLOCK, SIDE // BLOCK, BLOCK, 3).mean((1, 3, 4))
        if float(np.sqrt(blocks.max())) > MOST_IN_BLOCK:
            continue
        if best is None or difference < best[0]:
            best = (difference, "turned" if number else "copy")
    return None if best is None else (best[1], best[0])


def _unit(vectors: NDArray[Any]) -> NDArray[np.float32]:
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    unit: NDArray[np.float32] = (vectors / np.maximum(lengths, 1e-30)).astype(np.float32)
    return unit


def _cosine(vectors: NDArray[np.float32] | None, i: int, j: int) -> float | None:
    return None if vectors is None else float(vectors[i] @ vectors[j])
