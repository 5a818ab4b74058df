"""Measures of embeddings, and the evaluation of whole runs.

The measures are functions of an EmbeddingTable, NumPy arrays or tensors: retrieval, clustering,
classification, attributes, verification, open sets, the geometry of classes, problems in the data
and significance. Each module's docstring has the definitions.

`evaluate` measures everything on a run or a table, and `compare` puts runs beside each other. They
are loaded when they are first used, because they need `kinspace.training` and the measures do not.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kinspace.evaluation.accumulated import RetrievalMetrics
from kinspace.evaluation.classification import (
    confusion_counts,
    error_rate,
    knc_predict,
    knc_scores,
    knn_predict,
    merged_pairs,
    nearest_mean_predict,
    recovery_error,
    soft_knn_predict,
)
from kinspace.evaluation.cluster_metrics import ami, clustering_metrics, nmi, pairwise_f1
from kinspace.evaluation.data_problems import (
    ConfusedPair,
    Duplicate,
    HiddenGroups,
    SuspectLabel,
    confused_classes,
    hidden_groups,
    near_duplicates,
    suspect_labels,
)
from kinspace.evaluation.geometry import (
    ClassGeometry,
    alignment,
    class_geometry,
    recall_gap,
    spectrum,
    uniformity,
)
from kinspace.evaluation.graded import graded_metrics, graded_scores
from kinspace.evaluation.open_set import open_set_metrics, open_set_threshold
from kinspace.evaluation.retrieval import (
    QueryScores,
    Retrieval,
    cumulative_match,
    recall_at_k,
    retrieval_metrics,
)
from kinspace.evaluation.shared_attributes import attribute_precision, attribute_precision_each
from kinspace.evaluation.significance import compare_queries, compare_seeds, mean_and_spread
from kinspace.evaluation.similarity import nearest
from kinspace.evaluation.verification import (
    Roc,
    evaluate_threshold,
    roc_curve,
    verification_metrics,
)

if TYPE_CHECKING:
    from kinspace.evaluation.comparison import Comparison, compare
    from kinspace.evaluation.evaluator import evaluate
    from kinspace.evaluation.summary import Evaluation

__all__ = [
    "ClassGeometry",
    "Comparison",
    "ConfusedPair",
    "Duplicate",
    "Evaluation",
    "HiddenGroups",
    "QueryScores",
    "Retrieval",
    "RetrievalMetrics",
    "Roc",
    "SuspectLabel",
    "alignment",
    "ami",
    "attribute_precision",
    "attribute_precision_each",
    "class_geometry",
    "clustering_metrics",
    "compare",
    "compare_queries",
    "compare_seeds",
    "confused_classes",
    "confusion_counts",
    "cumulative_match",
    "error_rate",
    "evaluate",
    "evaluate_threshold",
    "graded_metrics",
    "graded_scores",
    "hidden_groups",
    "knc_predict",
    "knc_scores",
    "knn_predict",
    "mean_and_spread",
    "merged_pairs",
    "near_duplicates",
    "nearest",
    "nearest_mean_predict",
    "nmi",
    "open_set_metrics",
    "open_set_threshold",
    "pairwise_f1",
    "recall_at_k",
    "recall_gap",
    "recovery_error",
    "retrieval_metrics",
    "roc_curve",
    "soft_knn_predict",
    "spectrum",
    "suspect_labels",
    "uniformity",
    "verification_metrics",
]

_LOADED_ON_USE = {
    "Comparison": "kinspace.evaluation.comparison",
    "Evaluation": "kinspace.evaluation.summary",
    "compare": "kinspace.evaluation.comparison",
    "evaluate": "kinspace.evaluation.evaluator",
}


def __getattr__(name: str) -> Any:
    if name not in _LOADED_ON_USE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LOADED_ON_USE[name]), name)
