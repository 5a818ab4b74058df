"""`AccuracyCalculator` over the exact measures of `kinspace.evaluation`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from kinspace.evaluation.cluster_metrics import ami, kmeans, nmi
from kinspace.evaluation.retrieval import retrieval_metrics

__all__ = ["AccuracyCalculator"]

RETRIEVAL = {
    "precision_at_1": "recall@1",
    "r_precision": "r_precision",
    "mean_average_precision_at_r": "map@r",
    "mean_average_precision": "map",
}
CLUSTERING = {"NMI": nmi, "AMI": ami}


class AccuracyCalculator:
    """Measures by the names there, by Euclidean distances; neighbors are exact, without faiss.

    include: which; all where left out. exclude: which of them not.

    >>> x, labels = torch.tensor([[0.0], [1.0], [5.0], [6.0]]), torch.tensor([0, 0, 1, 1])
    >>> AccuracyCalculator(include=["precision_at_1", "NMI"]).get_accuracy(x, labels)
    {'precision_at_1': 1.0, 'NMI': 1.0}
    """

    def __init__(self, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> None:
        known = [*RETRIEVAL, *CLUSTERING]
        if wrong := [name for name in (*include, *exclude) if name not in known]:
            raise ValueError(f"include: expected some of {', '.join(known)}, got {wrong[0]!r}")
        self.names = [name for name in include or known if name not in exclude]

    def get_accuracy(
        self,
        query: Tensor,
        query_labels: Tensor,
        reference: Tensor | None = None,
        reference_labels: Tensor | None = None,
        ref_includes_query: bool = False,
    ) -> dict[str, float]:
        """The measures of queries in a reference, or in themselves, each left out of its own.

        ref_includes_query: the first rows of the reference are the queries.
        """
        others = (reference, reference_labels)
        own = None
        if ref_includes_query and reference is not None:
            own = torch.arange(len(query))
        found: dict[str, float] = {}
        if set(self.names) & set(RETRIEVAL):
            scores = retrieval_metrics(
                query,
                query_labels,
                ks=(1,),
                metric="euclidean",
                gallery=others[0],
                gallery_labels=others[1],
                rows_in_gallery=own,
            )
            found = {name: scores[key] for name, key in RETRIEVAL.items() if name in self.names}
        if set(self.names) & set(CLUSTERING):
            clusters = kmeans(query, len(query_labels.unique())).clusters
            names = [name for name in self.names if name in CLUSTERING]
            found |= {name: CLUSTERING[name](query_labels, clusters) for name in names}
        return found
