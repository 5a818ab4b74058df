"""Measures of an embedding, each on an EmbeddingTable, on numpy arrays or on tensors.

Retrieval, clustering and classification; attributes and hierarchy; verification and open sets; the
geometry of classes; trouble in the data; comparisons of runs. Definitions stand in the modules.
"""

from kinspace.evaluation.attributes import attribute_precision, attribute_precision_each
from kinspace.evaluation.classification import (
    confusion_counts,
    error_rate,
    knc_predict,
    knc_scores,
    knn_predict,
    nearest_mean_predict,
    soft_knn_predict,
)
from kinspace.evaluation.clustering import ami, clustering_metrics, nmi, pairwise_f1
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
from kinspace.evaluation.hierarchy import merged_pairs, recovery_error
from kinspace.evaluation.neighbors import nearest
from kinspace.evaluation.open_set import open_set_metrics, open_set_threshold
from kinspace.evaluation.retrieval import (
    QueryScores,
    Retrieval,
    recall_at_k,
    retrieval_metrics,
)
from kinspace.evaluation.roc import Roc
from kinspace.evaluation.significance import compare_queries, compare_seeds, mean_and_spread
from kinspace.evaluation.verification import (
    judge_threshold,
    roc_curve,
    verification_metrics,
)

__all__ = [
    "ClassGeometry",
    "ConfusedPair",
    "Duplicate",
    "HiddenGroups",
    "QueryScores",
    "Retrieval",
    "Roc",
    "SuspectLabel",
    "alignment",
    "ami",
    "attribute_precision",
    "attribute_precision_each",
    "class_geometry",
    "clustering_metrics",
    "compare_queries",
    "compare_seeds",
    "confused_classes",
    "confusion_counts",
    "error_rate",
    "hidden_groups",
    "judge_threshold",
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
