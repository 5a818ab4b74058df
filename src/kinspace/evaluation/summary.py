"""Every measure of an embedding, gathered in one `Evaluation` that goes to a JSON file.

`summarize` takes tables, whatever made them. What a table does not have (attributes, a training
part, a baseline) is left out; what cannot be measured on it is None, and a note says why.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from kinspace._core import checks
from kinspace.embeddings import EmbeddingTable
from kinspace.evaluation import protocols
from kinspace.evaluation.measures import RANKS, Job, Status
from kinspace.evaluation.similarity import METRICS

__all__ = ["RANKS", "Evaluation", "Status", "plain", "summarize"]


@dataclass(frozen=True)
class Evaluation:
    """What was measured. Sections that the data does not allow are None or empty."""

    name: str
    metric: str
    seed: int
    parts: dict[str, dict[str, int]]  # pictures and classes of test, train, validation
    retrieval: dict[str, dict[str, float]]  # "model" and each baseline
    gain: dict[str, dict[str, float]]  # Recall@1 of the model above each baseline
    by_class: dict[str, dict[str, float]]
    by_attribute: dict[str, dict[str, float]]
    attributes: dict[str, Any] | None
    clustering: dict[str, float]
    classification: dict[str, Any] | None
    verification: dict[str, Any] | None
    open_set: dict[str, Any] | None
    geometry: dict[str, Any]
    gap: dict[str, Any] | None  # training classes beside test classes
    trouble: dict[str, Any]
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; NaN becomes None."""
        found: dict[str, Any] = plain(asdict(self))
        return found


def plain(value: Any) -> Any:
    """Numbers, words, lists and dicts that JSON has.

    >>> plain({"a": np.float64("nan"), 1: (np.int64(2), True)})
    {'a': None, '1': [2, True]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, np.ndarray | list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def summarize(
    test: EmbeddingTable,
    *,
    train: EmbeddingTable | None = None,
    validation: EmbeddingTable | None = None,
    baselines: Mapping[str, EmbeddingTable] | None = None,
    metric: str = "cosine",
    seed: int = 0,
    **options: Any,
) -> Evaluation:
    """Measure the test table, beside what is known of the model's other parts and baselines.

    train: for the gap to the classes trained on, and copies of test pictures. validation: classes
    to choose thresholds on. baselines: the same test pictures as something else embeds them.
    options: name, device, fmr (the false-match rate wanted), status (called with each step), roles
    ("query" or "gallery" for each test picture, where the set came with them: for retrieval).

    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(80) % 8
    >>> x = 4 * rng.standard_normal((8, 8))[y] + rng.standard_normal((80, 8))
    >>> found = summarize(EmbeddingTable(x, y))
    >>> found.retrieval["model"]["recall@1"], found.gap, found.parts["test"]
    (1.0, None, {'pictures': 80, 'classes': 8})
    """
    known: dict[str, Any] = {"name": "embeddings", "device": None, "fmr": 1e-3, "roles": None}
    known |= {"status": lambda text: None}
    for name in options:
        checks.lookup("option", name, known)
    checks.choice("metric", metric, METRICS)
    known |= options
    roles = known.pop("roles")
    job = Job(test, metric, seed, **known)
    job.search_by(roles)
    ranked, others = job.retrieval(baselines or {})
    measured = {"model": ranked, **others}
    calibration = None if validation is None else job.known(validation)
    parts = {"train": train, "validation": validation, "test": test}
    share: dict[str, Any] = {"metric": metric, "seed": seed}
    job.status("classifying")
    classified = protocols.classification(job.vectors, job.labels, job.notes, **share)
    job.status("verifying pairs")
    verified = protocols.verification(
        job.vectors, job.labels, job.notes, calibration=calibration, fmr=job.fmr, **share
    )
    opened = protocols.open_set(
        job.vectors, job.labels, job.notes, calibration=calibration, **share
    )
    return Evaluation(
        name=job.name,
        metric=metric,
        seed=seed,
        parts={name: _size(part) for name, part in parts.items() if part is not None},
        retrieval={name: scores.summary() for name, scores in measured.items()},
        gain={name: job.gain(ranked, scores) for name, scores in others.items()},
        by_class=job.by_class(ranked),
        by_attribute=job.by_attribute(ranked),
        attributes=job.concentration(),
        clustering=job.clustering(),
        classification=classified and job.with_names(classified),
        verification=verified,
        open_set=opened,
        geometry=job.geometry(),
        gap=None if train is None else job.gap(ranked, train),
        trouble=job.trouble(train),
        notes=job.notes,
    )


def _size(table: EmbeddingTable) -> dict[str, int]:
    classes = 0 if table.labels is None else len(np.unique(table.labels))
    return {"pictures": len(table), "classes": classes}
