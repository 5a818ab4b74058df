"""Classification of the test part by the training part, each method by its own classifier.

Magnet by kNC (Rippel et al., ICLR 2016, Eq. 6), triplets by soft kNN, softmax by its own last
layer; and everything by everything, as in their Fig. 4(e). Distances are between embeddings as the
loss sees them. The variance is that of the training part around its clusters: kNC's own, and for
soft kNN around the class means. Nothing is chosen by the test part.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kinspace.clustering.kmeans import class_kmeans
from kinspace.evaluation.classification import (
    error_rate,
    knc_predict,
    knn_predict,
    nearest_mean_predict,
    soft_knn_predict,
)

__all__ = ["classification_errors"]

Part = tuple[Tensor, NDArray[np.int64]]  # embeddings and their classes
Classifier = tuple[Tensor, Tensor | None, NDArray[np.int64]]
NEAREST = 128  # clusters and samples that vote, as printed
K = 5


def classification_errors(
    train: Part,
    test: Part,
    *,
    clusters: int = 1,
    classifier: Classifier | None = None,
    seed: int = 0,
) -> dict[str, float]:
    """Errors by kNC with so many clusters a class, soft kNN, kNN, nearest class mean, softmax.

    classifier: weight, bias and the classes of the rows of a softmax; without, there is no
    "softmax_error".

    >>> x, y = torch.tensor([[0.0], [0.2], [1.0], [1.2]]), np.array([0, 0, 1, 1])
    >>> classification_errors((x, y), (x + 0.1, y))["knc_error"]
    0.0
    """
    (known, names), (queries, truth) = train, test
    labels = torch.from_numpy(names).to(known.device)
    index = class_kmeans(known, labels, clusters, seed=seed)
    means = index if clusters == 1 else class_kmeans(known, labels, 1, seed=seed)
    many = max(len(known) - 1, 1)
    metric: Any = {"metric": "euclidean"}
    predicted = {
        "knc": knc_predict(
            queries,
            index.centers,
            index.cluster_labels.cpu().numpy(),
            index.inertia / many,
            nearest=NEAREST,
        ),
        "soft_knn": soft_knn_predict(queries, known, names, means.inertia / many, k=NEAREST),
        "knn": knn_predict(queries, known, names, k=min(K, len(known)), **metric),
        "nearest_mean": nearest_mean_predict(queries, known, names, **metric),
    }
    if classifier is not None:
        weight, bias, classes = classifier
        bias = None if bias is None else bias.to(queries)
        logits = torch.nn.functional.linear(queries, weight.to(queries), bias)
        predicted["softmax"] = classes[logits.argmax(1).cpu().numpy()]
    return {f"{name}_error": error_rate(truth, found) for name, found in predicted.items()}
