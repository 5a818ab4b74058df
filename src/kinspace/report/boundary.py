"""The pictures at the boundary between known and unknown, for each setting of the dial."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinspace.data.pictures import Pictures
from kinspace.embeddings import EmbeddingTable
from kinspace.evaluation.class_evidence import LeftOut
from kinspace.evaluation.thresholds import Thresholds, calibration, held_out_rows
from kinspace.web import Thumbnails

__all__ = ["boundary"]

SHOWN = 6  # pictures on each side of the boundary
SIDE = 112


def boundary(
    thresholds: Thresholds | None,
    table: EmbeddingTable | None,
    pictures: Pictures | None,
    thumbnails: Thumbnails,
    trained: Collection[str] = (),
) -> dict[str, Any] | None:
    """The settings of the dial, each with the pictures nearest to its limit.

    refused: pictures of known classes that are just not named. accepted: strangers that just get
    through. Both are places in the list `pictures`, of texts and places in `images`, which has each
    picture once. trained: names of the classes that the model was trained on, which are left out.
    None without thresholds.
    """
    if thresholds is None or table is None:
        return None
    settings: list[dict[str, Any]] = [
        asdict(each) | {"text": str(each)} for each in thresholds.settings
    ]
    start = int(np.argmin([abs(each["strangers"] - thresholds.strangers) for each in settings]))
    shown: dict[tuple[int, str], int] = {}
    if (
        pictures is not None
        and (found := calibration(table, held_out_rows(table, trained))) is not None
    ):
        left = found[0]
        known, stranger = (thresholds.confidence(each) for each in (left.known, left.stranger))
        for setting in settings:
            limit = setting["confidence"]
            below = _nearest(np.where(left.right & (known < limit), known, -np.inf))
            above = _nearest(np.where(stranger >= limit, -stranger, -np.inf))
            names = _names(table, left)
            setting["refused"] = [
                shown.setdefault((int(left.rows[i]), names[0][i]), len(shown)) for i in below
            ]
            setting["accepted"] = [
                shown.setdefault((int(left.rows[i]), names[1][i]), len(shown)) for i in above
            ]
    rows = list(dict.fromkeys(row for row, _ in shown))
    return {
        "start": start,
        "settings": settings,
        "pictures": [{"image": rows.index(row), "text": text} for row, text in shown],
        "images": [
            thumbnails.add(pictures, row, side=SIDE) for row in rows if pictures is not None
        ],
    }


def _nearest(scores: NDArray[np.float64]) -> list[int]:
    order = np.argsort(-scores, kind="stable")[:SHOWN]
    return [int(i) for i in order if np.isfinite(scores[i])]


def _names(table: EmbeddingTable, left: LeftOut) -> tuple[list[str], list[str]]:
    """What is said under a picture as one of a known class, and as a stranger."""
    own = [table.class_name(label) for label in left.labels.tolist()]
    other = [table.class_name(label) for label in left.stranger.labels.tolist()]
    return own, [f"{name}, as {best}" for name, best in zip(own, other, strict=True)]
