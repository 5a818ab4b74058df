"""`AccuracyCalculator` over the exact measures of `kinspace.evaluation`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kinspace.evaluation.cluster_metrics import ami, kmeans, nmi
from kinspace.evaluation.retrieval import Retrieval

__all__ = ["AccuracyCalculator"]

RETRIEVAL = {
    "precision_at_1": "recall@1",
    "r_precision": "r_precision",
    "mean_average_precision_at_r": "map@r",
    "mean_average_precision": "map",
    "mean_reciprocal_rank": "mrr",
}
CLUSTERING = {"NMI": nmi, "AMI": ami}
Rows = Tensor | NDArray[Any]


class AccuracyCalculator:
    """Measures by the names there, by Euclidean distances; neighbors are exact, without faiss.

    include: which; all where left out. exclude: which of them not. avg_of_avgs: the mean over the
    classes of their means. k: "max_bin_count" and None are the same, since rankings are whole.

    >>> x, labels = torch.tensor([[0.0], [1.0], [5.0], [6.0]]), torch.tensor([0, 0, 1, 1])
    >>> AccuracyCalculator(include=["precision_at_1", "NMI"]).get_accuracy(x, labels)
    {'precision_at_1': 1.0, 'NMI': 1.0}
    """

    def __init__(
        self,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        avg_of_avgs: bool = False,
        *,
        k: str | None = None,
    ) -> None:
        if k not in (None, "max_bin_count"):
            raise ValueError(f"k: expected None or 'max_bin_count', got {k!r}")
        known = [*RETRIEVAL, *CLUSTERING]
        if wrong := [name for name in (*include, *exclude) if name not in known]:
            raise ValueError(f"include: expected some of {', '.join(known)}, got {wrong[0]!r}")
        self.avg_of_avgs = avg_of_avgs
        self.names = [name for name in include or known if name not in exclude]

    def get_accuracy(
        self,
        query: Rows,
        query_labels: Rows,
        reference: Rows | None = None,
        reference_labels: Rows | None = None,
        ref_includes_query: bool = False,
    ) -> dict[str, float]:
        """The measures of queries in a reference, or in themselves, each left out of its own.

        ref_includes_query: the first rows of the reference are the queries.
        """
        rows, labels = torch.as_tensor(query), torch.as_tensor(query_labels)
        found: dict[str, float] = {}
        if set(self.names) & set(RETRIEVAL):
            others = reference, reference_labels
            gallery, classes = (None if v is None else torch.as_tensor(v) for v in others)
            own = torch.arange(len(rows)) if ref_includes_query and gallery is not None else None
            scores = Retrieval(
                rows,
                labels,
                metric="euclidean",
                gallery=gallery,
                gallery_labels=classes,
                rows_in_gallery=own,
            ).scores((1,), more=("mrr",))
            means = scores.summary()
            if self.avg_of_avgs:
                of_classes = list(scores.by_group(labels).values())
                means = {k: float(np.nanmean([each[k] for each in of_classes])) for k in means}
            found = {name: means[key] for name, key in RETRIEVAL.items() if name in self.names}
        if set(self.names) & set(CLUSTERING):
            clusters = kmeans(rows, len(labels.unique())).clusters
            names = [name for name in self.names if name in CLUSTERING]
            found |= {name: CLUSTERING[name](labels, clusters) for name in names}
        return found
