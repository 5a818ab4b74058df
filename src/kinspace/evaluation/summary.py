"""Every measure of an embedding, in one `Evaluation` that is written to a JSON file.

`summarize` takes tables of vectors from any source. Sections that the data does not allow (no
attributes, no training part, no baseline, one class only) are None or empty, and a note says why.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kinspace._core import checks
from kinspace.embeddings import EmbeddingTable
from kinspace.evaluation import protocols
from kinspace.evaluation.cluster_metrics import clustering_metrics
from kinspace.evaluation.data_problems import data_problems
from kinspace.evaluation.geometry import alignment, class_geometry, spectrum, uniformity
from kinspace.evaluation.retrieval import (
    KS,
    QueryScores,
    Retrieval,
    queries_of,
    retrieval_by_roles,
)
from kinspace.evaluation.shared_attributes import (
    SIZES,
    attribute_precision,
    attribute_precision_each,
)
from kinspace.evaluation.significance import compare_queries
from kinspace.evaluation.similarity import METRICS, vectors_of
from kinspace.evaluation.thresholds import Thresholds, calibrate

__all__ = ["MEASURES", "RANKS", "Evaluation", "Status", "plain", "summarize"]

MEASURES = {
    "recall@1": "Recall@1",
    "recall@2": "Recall@2",
    "recall@4": "Recall@4",
    "recall@8": "Recall@8",
    "map@r": "MAP@R",
    "r_precision": "R-precision",
    "map": "mAP",
}


Status = Callable[[str], object]  # called with the step under way
RANKS = (1, 2, 4, 8, 16, 32, 64, 100)  # K of the Recall@K curve
GROUP_MEASURES = ("recall@1", "map@r", "queries")  # for each class and each attribute
RESTARTS = 5  # of K-means
KMEANS_STEPS = 10  # distances of all samples to all centers: about what one K-means computes
CPU_BUDGET = 1e13  # floating-point operations for K-means on a CPU: a minute or two on two cores


@dataclass(frozen=True)
class Evaluation:
    """The results. Sections that the data does not allow are None or empty.

    >>> y = np.arange(12) // 3
    >>> found = summarize(EmbeddingTable(np.eye(4)[y], y))
    >>> found.retrieval["model"]["recall@1"], found.attributes
    (1.0, None)
    """

    name: str
    metric: str
    seed: int
    parts: dict[str, dict[str, int]]  # pictures and classes of test, train, validation
    retrieval: dict[str, dict[str, float]]  # "model" and each baseline
    gain: dict[str, dict[str, float]]  # Recall@1 of the model minus that of each baseline
    by_class: dict[str, dict[str, float]]
    by_attribute: dict[str, dict[str, float]]
    attributes: dict[str, Any] | None
    clustering: dict[str, float]
    classification: dict[str, Any] | None
    verification: dict[str, Any] | None
    open_set: dict[str, Any] | None
    decision: dict[str, Any] | None  # the thresholds that decide whether a picture is known
    geometry: dict[str, Any]
    gap: dict[str, Any] | None  # Recall@K on training classes and on test classes
    problems: dict[str, Any]  # suspect labels, duplicates, confused classes, hidden groups
    notes: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; NaN becomes None."""
        found: dict[str, Any] = plain(asdict(self))
        return found


def plain(value: Any) -> Any:
    """The value in the types of JSON: numbers, strings, lists and dicts; NaN becomes None.

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


def summarize(  # noqa: PLR0913 (an option each for what can be known of the table)
    test: EmbeddingTable,
    *,
    train: EmbeddingTable | None = None,
    validation: EmbeddingTable | None = None,
    baselines: Mapping[str, EmbeddingTable] | None = None,
    metric: str = "cosine",
    seed: int = 0,
    name: str = "embeddings",
    device: str | torch.device | None = None,
    fmr: float = 1e-3,
    roles: Sequence[str] | None = None,
    thresholds: Thresholds | None = None,
    status: Status = lambda text: None,
) -> Evaluation:
    """Measure the test table.

    train: the training part, for the recall gap and for copies of test pictures. validation:
    classes to choose thresholds on. baselines: the same test pictures embedded by something else.
    device: where to compute, by default the CPU. fmr: the false-match rate to choose the
    verification threshold for. roles: "query" or "gallery" for each test picture, if the data set
    defines them; they are used for retrieval. thresholds: those that decide whether a picture is
    of a known class; by default they are calibrated on the test table. status: called with a
    text at each step.

    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(80) % 8
    >>> x = 4 * rng.standard_normal((8, 8))[y] + rng.standard_normal((80, 8))
    >>> found = summarize(EmbeddingTable(x, y))
    >>> found.retrieval["model"]["recall@1"], found.gap, found.parts["test"]
    (1.0, None, {'pictures': 80, 'classes': 8})
    """
    checks.choice("metric", metric, METRICS)
    sections = _Sections(test, metric, seed, device=device, roles=roles, status=status)
    ranked, others = sections.retrieval(baselines or {})
    calibration = None if validation is None else sections.vectors_and_labels(validation)
    parts = {"train": train, "validation": validation, "test": test}
    data = (sections.vectors, sections.labels, sections.notes)
    status("classifying")
    classified = protocols.classification(*data, metric=metric, seed=seed)
    status("verifying pairs")
    verified = protocols.verification(
        *data, calibration=calibration, fmr=fmr, metric=metric, seed=seed
    )
    opened = protocols.open_set(*data, calibration=calibration, metric=metric, seed=seed)
    return Evaluation(
        name=name,
        metric=metric,
        seed=seed,
        parts={name: _size(part) for name, part in parts.items() if part is not None},
        retrieval={n: scores.summary() for n, scores in {"model": ranked, **others}.items()},
        gain={name: sections.gain(ranked, scores) for name, scores in others.items()},
        by_class=sections.by_class(ranked),
        by_attribute=sections.by_attribute(ranked),
        attributes=sections.attributes(),
        clustering=sections.clustering(),
        classification=classified and sections.with_class_names(classified),
        verification=verified,
        open_set=opened,
        decision=_decision(test, thresholds),
        geometry=sections.geometry(),
        gap=None if train is None else sections.gap(ranked, train),
        problems=sections.problems(train),
        notes=sections.notes,
    )


def _decision(test: EmbeddingTable, thresholds: Thresholds | None) -> dict[str, Any] | None:
    found = calibrate(test) if thresholds is None else thresholds
    return None if found is None else found.to_dict()


def _size(table: EmbeddingTable) -> dict[str, int]:
    classes = 0 if table.labels is None else len(np.unique(table.labels))
    return {"pictures": len(table), "classes": classes}


class _Sections:
    """The sections of an evaluation, measured on the same test table; notes are collected."""

    def __init__(
        self,
        test: EmbeddingTable,
        metric: str,
        seed: int,
        *,
        device: str | torch.device | None,
        roles: Sequence[str] | None,
        status: Status,
    ) -> None:
        if test.labels is None:
            raise ValueError(
                "labels: expected a class for each vector, got none; add an array 'labels', or a "
                "CSV with a column 'label' beside a .npy"
            )
        if len(test) < 2:
            raise ValueError("vectors: expected at least two, to be one another's neighbors")
        self.table, self.metric, self.seed = test, metric, seed
        self.device, self.status = device, status
        self.vectors, self.labels = self.vectors_and_labels(test)
        self.notes: list[str] = []
        if zeros := int((self.vectors == 0).all(1).sum()):
            self.notes.append(f"zero vectors, which have no direction: {zeros:,}")
        sizes = np.unique(self.labels, return_counts=True)[1]
        if len(sizes) < 2:
            self.notes.append("there is only one class, so nothing can be confused")
        if alone := int((sizes == 1).sum()):
            self.notes.append(f"classes with a single picture, which has no match: {alone:,}")
        self.roles, searching = roles, queries_of(roles)
        self.searching = np.ones(len(test), bool) if searching is None else searching
        if searching is not None:
            self.notes.append(
                f"retrieval: the {searching.sum():,} queries of the data set search its gallery; "
                "all other measures use the whole test part"
            )

    def vectors_and_labels(self, table: EmbeddingTable) -> tuple[Tensor, NDArray[np.int64]]:
        """The vectors of a labeled table on the device, and its labels."""
        assert table.labels is not None
        return vectors_of(table, device=self.device), table.labels

    def retrieval(
        self, baselines: Mapping[str, EmbeddingTable]
    ) -> tuple[QueryScores, dict[str, QueryScores]]:
        """The scores of each query by the model, and by each baseline."""
        ks = [k for k in RANKS if k < len(self.labels)] or [1]
        found = []
        for name, table in {"the model": self.table, **baselines}.items():
            if len(table) != len(self.table):
                raise ValueError(
                    f"{name}: expected {len(self.table)} vectors like the model's, got {len(table)}"
                )
            self.status(f"ranking by {name}")
            vectors = vectors_of(table, device=self.device)
            ranked = retrieval_by_roles(vectors, self.labels, self.roles, metric=self.metric)
            found.append(ranked.scores(ks))
        return found[0], dict(zip(baselines, found[1:], strict=True))

    def gain(self, model: QueryScores, baseline: QueryScores) -> dict[str, float]:
        """The difference of Recall@1 with its interval and p-value."""
        one, other = (s.values["recall@1"].cpu().numpy() for s in (model, baseline))
        return compare_queries(one, other, self.labels[self.searching], seed=self.seed)

    def by_class(self, scores: QueryScores) -> dict[str, dict[str, float]]:
        """`GROUP_MEASURES` of each class."""
        found, name = scores.by_group(self.labels[self.searching]), self.table.class_name
        return {name(label): {m: row[m] for m in GROUP_MEASURES} for label, row in found.items()}

    def by_attribute(self, scores: QueryScores) -> dict[str, dict[str, float]]:
        """`GROUP_MEASURES` of the pictures that have each attribute."""
        if self.table.attributes is None:
            return {}
        attributes = self.table.attributes[self.searching]
        found = scores.by_attribute(attributes, self.table.attribute_names)
        return {
            name: {m: row[m] for m in GROUP_MEASURES}
            for name, row in found.items()
            if row["queries"]
        }

    def attributes(self) -> dict[str, Any] | None:
        """Whether neighbors share attributes, by the size of the neighborhood."""
        values = self.table.attributes
        if values is None or not (values > 0.5).any():
            return None
        self.status("comparing attributes")
        sizes = [size for size in SIZES if size < len(self.table)]
        having = (values > 0.5).sum(0)
        return {
            "precision": attribute_precision(self.vectors, values, sizes, metric=self.metric),
            "chance": float((having**2).sum() / having.sum() / len(self.table)),
            "each": attribute_precision_each(
                self.vectors,
                values,
                sizes[:1],
                names=self.table.attribute_names,
                metric=self.metric,
            ),
        }

    def clustering(self) -> dict[str, float]:
        """`RESTARTS` K-means; on a CPU fewer where those would take many minutes."""
        self.status("clustering")
        rows, dim = self.vectors.shape
        one_kmeans = 2.0 * rows * dim * len(np.unique(self.labels)) * KMEANS_STEPS
        restarts = RESTARTS
        if self.vectors.device.type == "cpu":
            restarts = int(np.clip(CPU_BUDGET / one_kmeans, 1, RESTARTS))
        if restarts < RESTARTS:
            self.notes.append(
                f"clustering: {restarts} of {RESTARTS} K-means, to save time on a CPU"
            )
        return clustering_metrics(
            self.vectors, self.labels, restarts=restarts, seed=self.seed, metric=self.metric
        )

    def geometry(self) -> dict[str, Any]:
        """Distances and densities of the classes, alignment, uniformity, spectrum."""
        self.status("measuring the geometry")
        classes = class_geometry(self.vectors, self.labels, metric=self.metric)
        found: dict[str, Any] = classes.summary() if len(classes.labels) > 1 else {}
        found["alignment"] = alignment(self.vectors, self.labels)
        found["uniformity"] = uniformity(self.vectors)
        try:
            found |= spectrum(self.vectors, metric=self.metric)
        except ValueError:  # all vectors are equal or, for the cosine, have one direction
            self.notes.append("all vectors are the same: the embedding has collapsed")
        names = [self.table.class_name(label) for label in classes.labels.tolist()]
        near = [self.table.class_name(label) for label in classes.neighbor.tolist()]
        columns = zip(names, classes.counts, classes.density, classes.gap, near, strict=True)
        keys = ("class", "count", "density", "gap", "neighbor")
        found["classes"] = [dict(zip(keys, row, strict=True)) for row in columns]
        return found

    def gap(self, test: QueryScores, train: EmbeddingTable) -> dict[str, Any]:
        """Recall@K on the training classes, on the test classes, and the difference."""
        self.status("ranking the training part")
        vectors, labels = self.vectors_and_labels(train)
        ks = [k for k in KS if k < min(len(self.labels), len(labels))] or [1]
        on_train = Retrieval(vectors, labels, metric=self.metric).scores(ks).summary()
        on_test = test.summary()
        names = [f"recall@{k}" for k in ks]
        return {
            "train": {name: on_train[name] for name in names},
            "test": {name: on_test[name] for name in names},
            "gap": {name: on_train[name] - on_test[name] for name in names},
        }

    def with_class_names(self, found: dict[str, Any]) -> dict[str, Any]:
        """The classification with names in place of the labels of confused classes."""
        name = self.table.class_name
        return found | {"confusions": [[name(a), name(b), n] for a, b, n in found["confusions"]]}

    def problems(self, train: EmbeddingTable | None) -> dict[str, Any]:
        """`data_problems` of the table."""
        self.status("searching for problems in the data")
        known = None if train is None else (train, self.vectors_and_labels(train)[0])
        return data_problems(
            self.table, self.vectors, self.notes, train=known, metric=self.metric, seed=self.seed
        )
