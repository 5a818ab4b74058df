"""What the page shows of a gallery as a whole: the run, its classes, pictures, map and results."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kinspace.data.dataset import natural_order
from kinspace.embeddings import EmbeddingTable
from kinspace.evaluation.thresholds import no_thresholds
from kinspace.inference import EmbeddingModel

__all__ = ["about", "classes", "map_points", "pictures", "report_file", "to_json"]

STEPS = 10_000  # of a map coordinate
MEASURES = ("recall@1", "recall@2", "recall@4", "recall@8", "map@r")
COMPARED = {"selected": "this model", "untrained": "", "pixels": "raw pixels"}


def about(model: EmbeddingModel) -> dict[str, Any]:
    """Name, size, thresholds, and the results on the test classes from results.json."""
    table = model.table
    return {
        "name": model.name,
        "data": str(model.about.get("data", "")).rpartition("/")[2],
        "pictures": len(table),
        "dim": table.dim,
        "thresholds": None if model.thresholds is None else model.thresholds.to_dict(),
        "uncalibrated": no_thresholds(table) if model.thresholds is None else None,
        "trained": model.folder is not None and model.run.trained,
        "backbone": _backbone(model),
        "results": _results(model),
        "report": report_file(model) is not None,
    }


def report_file(model: EmbeddingModel) -> Path | None:
    """The page that `kinspace report` has written of the run; None where there is none."""
    if model.folder is None:
        return None
    page = model.folder / "report" / "index.html"
    return page if page.is_file() else None


def _backbone(model: EmbeddingModel) -> str | None:
    config = model.about["model"]
    return None if isinstance(config, str) else str(config["backbone"]["name"])


def _results(model: EmbeddingModel) -> dict[str, Any] | None:
    found = {} if model.folder is None else model.run.results
    rows = [
        {
            "name": name or f"the {model.run.start_name}",
            **{m: found[key][m] for m in MEASURES if m in found[key]},
        }
        for key, name in COMPARED.items()
        if isinstance(found.get(key), dict)
    ]
    if not rows or not isinstance(found.get("selected"), dict):
        return None
    parts = model.about["classes"]
    test, train = set(parts.get("test", ())), set(parts.get("train", ()))
    return {
        "rows": rows,
        "pictures": found["selected"].get("queries"),
        "classes": len(test),
        "unseen": not test & train,
    }


def classes(table: EmbeddingTable) -> dict[str, Any]:
    """Classes in natural order and attributes, with their numbers of pictures."""
    found: list[dict[str, Any]] = []
    if table.labels is not None:
        counts = np.bincount(table.labels).tolist()
        found = [
            {"name": table.class_name(label), "label": label, "pictures": count}
            for label, count in enumerate(counts)
            if count
        ]
        found.sort(key=lambda each: natural_order(each["name"]))
    having = [] if table.attributes is None else (table.attributes > 0.5).sum(0).tolist()
    attributes = [
        {"name": name, "pictures": count}
        for name, count in zip(table.attribute_names, having, strict=True)
    ]
    return {"classes": found, "attributes": attributes}


def pictures(table: EmbeddingTable) -> dict[str, Any]:
    """Ids and labels of all rows, and a bit per row for each attribute: base64, low bit first.

    >>> pictures(EmbeddingTable(np.eye(2), [0, 1]))
    {'ids': ['0', '1'], 'labels': [0, 1], 'attributes': {}}
    """
    having = None if table.attributes is None else table.attributes > 0.5
    return {
        "ids": list(table.ids),
        "labels": None if table.labels is None else table.labels.tolist(),
        "attributes": {
            name: base64.b64encode(
                np.packbits(having[:, place], bitorder="little").tobytes()
            ).decode()
            for place, name in enumerate(table.attribute_names)
            if having is not None
        },
    }


def map_points(positions: NDArray[np.float32]) -> dict[str, Any]:
    """The positions of all rows in steps of 1/10000.

    >>> map_points(np.array([[0, 0.5], [1, 0.25]], np.float32))
    {'x': [0, 10000], 'y': [5000, 2500]}
    """
    steps = (positions * STEPS).round().astype(int)
    return {"x": steps[:, 0].tolist(), "y": steps[:, 1].tolist()}


def to_json(value: Any) -> bytes:
    """Compact JSON in UTF-8.

    >>> to_json({"x": [0, 1]})
    b'{"x":[0,1]}'
    """
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
