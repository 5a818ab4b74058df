"""Queries to a gallery with answers as plain values, for the server and the static site."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from numpy.typing import NDArray

from kinspace.embeddings import EmbeddingTable
from kinspace.inference import EmbeddingModel, Neighbor, Verdict
from kinspace.search import Where

__all__ = ["neighbors", "parse_filter", "search"]


def search(
    model: EmbeddingModel,
    vector: NDArray[Any],
    k: int,
    where: Where | None = None,
    strangers: float | None = None,
) -> dict[str, Any]:
    """The nearest pictures of a vector and its class. The filter does not act on the class."""
    if model.table.labels is None:
        return {"verdict": None, "neighbors": _neighbors_json(model.near(vector, k, where=where))}
    verdict = model.classify_vector(vector, k, strangers=strangers)
    near: Sequence[Neighbor] = verdict.neighbors
    if where is not None:
        near = model.near(vector, k, where=where, strangers=strangers)
    return {"verdict": _verdict_json(verdict), "neighbors": _neighbors_json(near)}


def neighbors(
    model: EmbeddingModel, row: int, k: int, where: Where | None = None
) -> list[dict[str, Any]]:
    """The nearest other pictures of a row of the gallery."""
    near = model.near(model.table.vectors[row], k + 1, where=where)
    labels = model.table.labels
    return _neighbors_json(
        [
            each if labels is None else replace(each, same=each.label == labels[row])
            for each in near
            if each.row != row
        ][:k]
    )


def _neighbors_json(near: Sequence[Neighbor]) -> list[dict[str, Any]]:
    return [
        {
            "row": each.row,
            "id": each.id,
            "class": each.class_name,
            "similarity": round(each.similarity, 6),
            "same": None if each.same is None else bool(each.same),
        }
        for each in near
    ]


def _verdict_json(verdict: Verdict) -> dict[str, Any]:
    confidence, strangers = verdict.confidence, verdict.strangers
    return {
        "class": verdict.class_name,
        "best": verdict.best,
        "known": verdict.known,
        "confidence": None if confidence is None else round(confidence, 6),
        "strangers": None if strangers is None else round(strangers, 6),
        "similarity": round(verdict.similarity, 6),
        "exact": verdict.exact,
        "agreeing": list(verdict.agreeing),
        "headline": verdict.headline,
        "evidence": verdict.evidence,
        "text": str(verdict),
    }


def parse_filter(text: str, table: EmbeddingTable) -> Where | None:
    """The filter in a JSON text, checked against the table; None if it is empty.

    >>> import numpy as np
    >>> table = EmbeddingTable(np.eye(2), [0, 1], class_names=("io", "luna"))
    >>> parse_filter('{"class": ["io"]}', table)
    {'class': ['io']}
    >>> parse_filter('{"class": "moon"}', table)
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
