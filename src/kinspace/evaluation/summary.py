"""Every measure of an embedding, gathered in one `Evaluation` that goes to a JSON file.

`summarize` takes tables, whatever made them. What a table does not have (attributes, a training
part, a baseline) is left out; what cannot be measured on it is None, and a note says why.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kinspace import checks
from kinspace.evaluation import protocols
from kinspace.evaluation.attributes import SIZES, attribute_precision, attribute_precision_each
from kinspace.evaluation.clustering import clustering_metrics
from kinspace.evaluation.comparing import compare_queries
from kinspace.evaluation.findings import findings
from kinspace.evaluation.geometry import alignment, class_geometry, spectrum, uniformity
from kinspace.evaluation.inputs import vectors_of
from kinspace.evaluation.retrieval import KS, QueryScores, Retrieval
from kinspace.evaluation.similarity import METRICS
from kinspace.table import EmbeddingTable

__all__ = ["Evaluation", "Tell", "plain", "summarize"]

Tell = Callable[[str], object]  # is told what is being done
RANKS = (1, 2, 4, 8, 16, 32, 64, 100)  # of the curve of Recall@K
KEPT = ("recall@1", "map@r", "queries")  # of each class and attribute
OPERATIONS = 1e13  # that K-means may take on a CPU: a minute or two on two cores
RESTARTS = 5  # of K-means
STEPS = 10  # of all samples to all centers: about what one K-means costs, with its seeds


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
    options: name, device, fmr (the false-match rate wanted), tell (called with each step).

    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(80) % 8
    >>> x = 4 * rng.standard_normal((8, 8))[y] + rng.standard_normal((80, 8))
    >>> found = summarize(EmbeddingTable(x, y))
    >>> found.retrieval["model"]["recall@1"], found.gap, found.parts["test"]
    (1.0, None, {'pictures': 80, 'classes': 8})
    """
    known = {"name": "embeddings", "device": None, "fmr": 1e-3, "tell": lambda text: None}
    for name in options:
        checks.named("option", name, known)
    checks.choice("metric", metric, METRICS)
    job = _Job(test, metric, seed, **(known | options))
    ranked, others = job.retrieval(baselines or {})
    measured = {"model": ranked, **others}
    calibration = None if validation is None else job.known(validation)
    parts = {"train": train, "validation": validation, "test": test}
    share: dict[str, Any] = {"metric": metric, "seed": seed}
    job.tell("classifying")
    classified = protocols.classification(job.vectors, job.labels, job.notes, **share)
    job.tell("verifying pairs")
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


class _Job:
    """The test table on its device, and the measures that need nothing else."""

    def __init__(
        self,
        test: EmbeddingTable,
        metric: str,
        seed: int,
        *,
        name: str,
        device: str | torch.device | None,
        fmr: float,
        tell: Tell,
    ) -> None:
        if test.labels is None:
            raise ValueError(
                "labels: expected a class for each vector, got none; add an array 'labels', or a "
                "CSV with a column 'label' beside a .npy"
            )
        if len(test) < 2:
            raise ValueError("vectors: expected at least two, to be one another's neighbors")
        self.table, self.metric, self.seed, self.name = test, metric, seed, name
        self.device, self.fmr, self.tell = device, fmr, tell
        self.vectors, self.labels = self.known(test)
        self.notes: list[str] = []
        if zeros := int((self.vectors == 0).all(1).sum()):
            self.notes.append(f"{zeros} vectors are zero: as similar to everything as to nothing")
        sizes = np.unique(self.labels, return_counts=True)[1]
        if len(sizes) < 2:
            self.notes.append("there is one class only: nothing can be confused")
        if alone := int((sizes == 1).sum()):
            self.notes.append(f"{alone} classes have one picture: they have nothing to find")

    def known(self, table: EmbeddingTable) -> tuple[Tensor, NDArray[np.int64]]:
        assert table.labels is not None
        return vectors_of(table, device=self.device), table.labels

    def retrieval(
        self, baselines: Mapping[str, EmbeddingTable]
    ) -> tuple[QueryScores, dict[str, QueryScores]]:
        ks = [k for k in RANKS if k < len(self.labels)] or [1]
        found = []
        for name, table in {"the model": self.table, **baselines}.items():
            if len(table) != len(self.table):
                raise ValueError(
                    f"{name}: expected {len(self.table)} vectors like the model's, got {len(table)}"
                )
            self.tell(f"ranking by {name}")
            vectors = vectors_of(table, device=self.device)
            found.append(Retrieval(vectors, self.labels, metric=self.metric).scores(ks))
        return found[0], dict(zip(baselines, found[1:], strict=True))

    def gain(self, ours: QueryScores, theirs: QueryScores) -> dict[str, float]:
        one, other = (s.values["recall@1"].cpu().numpy() for s in (ours, theirs))
        return compare_queries(one, other, self.labels, seed=self.seed)

    def by_class(self, scores: QueryScores) -> dict[str, dict[str, float]]:
        found, name = scores.by_group(self.labels), self.table.class_name
        return {name(label): {one: row[one] for one in KEPT} for label, row in found.items()}

    def by_attribute(self, scores: QueryScores) -> dict[str, dict[str, float]]:
        if self.table.attributes is None:
            return {}
        found = scores.by_attribute(self.table.attributes, self.table.attribute_names)
        return {
            name: {one: row[one] for one in KEPT} for name, row in found.items() if row["queries"]
        }

    def concentration(self) -> dict[str, Any] | None:
        """Do neighbors share attributes: by neighborhood size, over all and for each."""
        values = self.table.attributes
        if values is None or not (values > 0.5).any():
            return None
        self.tell("looking at attributes")
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
        """RESTARTS K-means, fewer where those would take many minutes."""
        self.tell("clustering")
        rows, dim = self.vectors.shape
        step = 2.0 * rows * dim * len(np.unique(self.labels))
        restarts = RESTARTS
        if self.vectors.device.type == "cpu":
            restarts = int(np.clip(OPERATIONS / (step * STEPS), 1, RESTARTS))
        if restarts < RESTARTS:
            self.notes.append(
                f"clustering: {restarts} K-means instead of {RESTARTS}; a GPU makes all"
            )
        return clustering_metrics(
            self.vectors, self.labels, restarts=restarts, seed=self.seed, metric=self.metric
        )

    def geometry(self) -> dict[str, Any]:
        self.tell("measuring the shape")
        classes = class_geometry(self.vectors, self.labels, metric=self.metric)
        found: dict[str, Any] = classes.summary() if len(classes.labels) > 1 else {}
        found["alignment"] = alignment(self.vectors, self.labels)
        found["uniformity"] = uniformity(self.vectors)
        if bool((self.vectors == self.vectors[0]).all()):
            self.notes.append("all vectors are the same: the embedding has collapsed")
        else:
            found |= spectrum(self.vectors, metric=self.metric)
        names = [self.table.class_name(label) for label in classes.labels.tolist()]
        near = [self.table.class_name(label) for label in classes.neighbor.tolist()]
        columns = zip(names, classes.counts, classes.density, classes.gap, near, strict=True)
        keys = ("class", "count", "density", "gap", "neighbor")
        found["classes"] = [dict(zip(keys, row, strict=True)) for row in columns]
        return found

    def gap(self, test: QueryScores, train: EmbeddingTable) -> dict[str, Any]:
        """Recall@K on the training classes, on the test classes, and the difference."""
        self.tell("ranking the training part")
        vectors, labels = self.known(train)
        ks = [k for k in KS if k < min(len(self.labels), len(labels))] or [1]
        ours = Retrieval(vectors, labels, metric=self.metric).scores(ks).summary()
        theirs = test.summary()
        both = {f"recall@{k}": (ours[f"recall@{k}"], theirs[f"recall@{k}"]) for k in ks}
        return {
            "train": {name: train for name, (train, _) in both.items()},
            "test": {name: test for name, (_, test) in both.items()},
            "gap": {name: train - test for name, (train, test) in both.items()},
        }

    def with_names(self, found: dict[str, Any]) -> dict[str, Any]:
        name = self.table.class_name
        return found | {"confusions": [[name(a), name(b), n] for a, b, n in found["confusions"]]}

    def trouble(self, train: EmbeddingTable | None) -> dict[str, Any]:
        self.tell("looking for trouble in the data")
        known = None if train is None else (train, self.known(train)[0])
        share: dict[str, Any] = {"metric": self.metric, "seed": self.seed}
        return findings(self.table, self.vectors, self.notes, train=known, **share)
