"""Questions to a gallery, answered in plain values: for the server and for the static page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from kinspace.embeddings import EmbeddingTable
from kinspace.inference import Model, Neighbor, Thresholds, Verdict
from kinspace.search import Where

__all__ = ["KINDS", "about_vector", "kind", "neighbors_of", "where_of"]

KINDS = ("unknown", "not sure", "same kind")


def kind(similarity: float, thresholds: Thresholds | None) -> str | None:
    """What a cosine means; None where there are no thresholds.

    "same kind" from both thresholds on, "not sure" between the two, "unknown" below. `known` is set
    for the nearest of many pictures, `same` for a pair: one may be passed and the other not.

    >>> limits = Thresholds(same=0.6, fmr=0.01, tmr=0.9, classes=5, pictures=50, known=0.8)
    >>> [kind(cosine, limits) for cosine in (0.9, 0.7, 0.1)]
    ['same kind', 'not sure', 'unknown']
    """
    if thresholds is None:
        return None
    limits = [thresholds.same]
    if thresholds.known is not None:
        limits.append(thresholds.known)
    return KINDS[(similarity >= max(limits)) + (similarity >= min(limits))]


def about_vector(
    model: Model, vector: NDArray[Any], k: int, where: Where | None = None
) -> dict[str, Any]:
    """Its nearest pictures and what it is of; the latter by all pictures, whatever the filter."""
    if model.table.labels is None:
        return {"verdict": None, "neighbors": _plain(model, model.near(vector, k, where=where))}
    verdict = model.classify_vector(vector, k)
    near = verdict.neighbors if where is None else model.near(vector, k, where=where)
    return {"verdict": _plain_verdict(model, verdict), "neighbors": _plain(model, near)}


def neighbors_of(
    model: Model, row: int, k: int, where: Where | None = None
) -> list[dict[str, Any]]:
    """The nearest other pictures of one in the gallery."""
    near = model.near(model.table.vectors[row], k + 1, where=where)
    return _plain(model, [each for each in near if each.row != row][:k])


def _plain(model: Model, near: Sequence[Neighbor]) -> list[dict[str, Any]]:
    return [
        {
            "row": each.row,
            "id": each.id,
            "class": each.class_name,
            "similarity": round(each.similarity, 6),
            "kind": kind(each.similarity, model.thresholds),
        }
        for each in near
    ]


def _plain_verdict(model: Model, verdict: Verdict) -> dict[str, Any]:
    return {
        "class": verdict.class_name,
        "best": verdict.best,
        "confidence": round(verdict.confidence, 6),
        "similarity": round(verdict.similarity, 6),
        "kind": kind(verdict.similarity, model.thresholds),
    }


def where_of(text: str, table: EmbeddingTable) -> Where | None:
    """A filter from JSON; none for an empty text or object.

    >>> import numpy as np
    >>> table = EmbeddingTable(np.eye(2), [0, 1], class_names=("io", "luna"))
    >>> where_of('{"class": ["io"]}', table)
    {'class': ['io']}
    >>> where_of('{"class": "moon"}', table)
    Traceback (most recent call last):
    ValueError: filter: expected classes of the gallery, got 'moon'; GET /api/classes lists them
    """
    if not text.strip():
        return None
    try:
        given = json.loads(text)
    except (ValueError, RecursionError):
        raise ValueError(f"filter: expected JSON, got {text[:80]!r}") from None
    if not isinstance(given, dict):
        raise ValueError(f'filter: expected an object such as {{"class": "io"}}, got {text[:80]!r}')
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name == "class":
            found[name] = _classes(value, table)
        elif name in table.attribute_names and isinstance(value, bool):
            found[name] = value
        else:
            raise ValueError(
                'filter: expected "class", or an attribute of the gallery with true or false, got '
                f"{str(name)[:80]!r}: {str(value)[:80]!r}; GET /api/classes lists them"
            )
    return found or None


def _classes(value: Any, table: EmbeddingTable) -> list[str]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not names:
        raise ValueError("filter: expected a class or several, got none")
    known = set(table.class_names or ())
    for name in names:
        if not isinstance(name, str) or name not in known:
            raise ValueError(
                f"filter: expected classes of the gallery, got {str(name)[:80]!r}; "
                "GET /api/classes lists them"
            )
    return names
