"""The measures of one test table, for `summary`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kinspace.embeddings import EmbeddingTable
from kinspace.evaluation.cluster_metrics import clustering_metrics
from kinspace.evaluation.geometry import alignment, class_geometry, spectrum, uniformity
from kinspace.evaluation.metric_inputs import vectors_of
from kinspace.evaluation.problem_summary import findings
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

__all__ = ["RANKS", "Job", "Status"]

Status = Callable[[str], object]  # called with the step under way
RANKS = (1, 2, 4, 8, 16, 32, 64, 100)  # of the curve of Recall@K
KEPT = ("recall@1", "map@r", "queries")  # of each class and attribute
OPERATIONS = 1e13  # that K-means may take on a CPU: a minute or two on two cores
RESTARTS = 5  # of K-means
STEPS = 10  # of all samples to all centers: about what one K-means costs, with its seeds


class Job:
    """The test table on its device, and the measures that need little else."""

    def __init__(
        self,
        test: EmbeddingTable,
        metric: str,
        seed: int,
        *,
        name: str,
        device: str | torch.device | None,
        fmr: float,
        status: Status,
    ) -> None:
        if test.labels is None:
            raise ValueError(
                "labels: expected a class for each vector, got none; add an array 'labels', or a "
                "CSV with a column 'label' beside a .npy"
            )
        if len(test) < 2:
            raise ValueError("vectors: expected at least two, to be one another's neighbors")
        self.table, self.metric, self.seed, self.name = test, metric, seed, name
        self.device, self.fmr, self.status = device, fmr, status
        self.vectors, self.labels = self.known(test)
        self.notes: list[str] = []
        if zeros := int((self.vectors == 0).all(1).sum()):
            self.notes.append(f"zero vectors, as similar to everything as to nothing: {zeros:,}")
        sizes = np.unique(self.labels, return_counts=True)[1]
        if len(sizes) < 2:
            self.notes.append("there is one class only: nothing can be confused")
        if alone := int((sizes == 1).sum()):
            self.notes.append(f"classes with one picture, which has nothing to find: {alone:,}")

    def search_by(self, roles: Sequence[str] | None) -> None:
        """For retrieval: which test pictures search, and which are found."""
        self.roles, searching = roles, queries_of(roles)
        self.searching = np.ones(len(self.table), bool) if searching is None else searching
        if searching is not None:
            self.notes.append(
                f"retrieval: the set's own {searching.sum():,} queries search its gallery; all "
                "else is of each test picture among all"
            )

    def known(self, table: EmbeddingTable) -> tuple[Tensor, NDArray[np.int64]]:
        """The vectors of a labeled table on the device, and their classes."""
        assert table.labels is not None
        return vectors_of(table, device=self.device), table.labels

    def retrieval(
        self, baselines: Mapping[str, EmbeddingTable]
    ) -> tuple[QueryScores, dict[str, QueryScores]]:
        """What each query scored by the model, and by each baseline."""
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

    def gain(self, ours: QueryScores, theirs: QueryScores) -> dict[str, float]:
        """How much Recall@1 differs between two, with its interval and its test."""
        one, other = (s.values["recall@1"].cpu().numpy() for s in (ours, theirs))
        return compare_queries(one, other, self.labels[self.searching], seed=self.seed)

    def by_class(self, scores: QueryScores) -> dict[str, dict[str, float]]:
        """The kept measures of each class."""
        found, name = scores.by_group(self.labels[self.searching]), self.table.class_name
        return {name(label): {one: row[one] for one in KEPT} for label, row in found.items()}

    def by_attribute(self, scores: QueryScores) -> dict[str, dict[str, float]]:
        """The kept measures of the pictures that have each attribute."""
        if self.table.attributes is None:
            return {}
        attributes = self.table.attributes[self.searching]
        found = scores.by_attribute(attributes, self.table.attribute_names)
        return {
            name: {one: row[one] for one in KEPT} for name, row in found.items() if row["queries"]
        }

    def concentration(self) -> dict[str, Any] | None:
        """Do neighbors share attributes: by neighborhood size, over all and for each."""
        values = self.table.attributes
        if values is None or not (values > 0.5).any():
            return None
        self.status("looking at attributes")
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
        self.status("clustering")
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
        """Distances and densities of the classes, alignment, uniformity, spectrum."""
        self.status("measuring the shape")
        classes = class_geometry(self.vectors, self.labels, metric=self.metric)
        found: dict[str, Any] = classes.summary() if len(classes.labels) > 1 else {}
        found["alignment"] = alignment(self.vectors, self.labels)
        found["uniformity"] = uniformity(self.vectors)
        try:
            found |= spectrum(self.vectors, metric=self.metric)
        except ValueError:  # nothing differs; by cosine, no direction does
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
        """The same with the names of the classes that were confused."""
        name = self.table.class_name
        return found | {"confusions": [[name(a), name(b), n] for a, b, n in found["confusions"]]}

    def trouble(self, train: EmbeddingTable | None) -> dict[str, Any]:
        """What the embedding reveals of the data: `findings`."""
        self.status("looking for trouble in the data")
        known = None if train is None else (train, self.known(train)[0])
        share: dict[str, Any] = {"metric": self.metric, "seed": self.seed}
        return findings(self.table, self.vectors, self.notes, train=known, **share)
