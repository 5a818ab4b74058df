"""The numbers of a finished run: those that its training wrote, and those computed here.

Retrieval measures of results.json are taken as they are. Clustering, classification, attributes
and the rest are computed here, by the run's chosen weights over the parts the run had. The data is
opened and decoded once for all runs of an experiment.

`classification_errors` classifies the test part by the training part, each method by its own
classifier: Magnet by kNC (Rippel et al., ICLR 2016, Eq. 6), triplets by soft kNN, softmax by its
last layer, as in their Fig. 4(e). Distances are between embeddings as the loss sees them. The
variance is that of the training part around its clusters: kNC's own, and for soft kNN around the
class means. Nothing is chosen by the test part.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from kinspace._core.vectors import unit
from kinspace.clustering.kmeans import class_kmeans
from kinspace.data import Dataset, TransformSettings
from kinspace.data.load import load_dataset
from kinspace.evaluation.classification import (
    error_rate,
    knc_predict,
    knn_predict,
    nearest_mean_predict,
    soft_knn_predict,
)
from kinspace.evaluation.retrieval import Retrieval, retrieval_by_roles
from kinspace.models import Embedder
from kinspace.recipes import Recipe
from kinspace.recipes.fields import require_choice
from kinspace.reproduce.table_measures import at
from kinspace.run import Run, open_run
from kinspace.training.components import make_model, transform_settings
from kinspace.training.data_parts import DataPart, prepare
from kinspace.training.embedding import embed_all
from kinspace.training.run_folder import read_checkpoint
from kinspace.training.settings import RunSettings

__all__ = ["RunMeasures", "classification_errors", "nearest_cosines"]

SCALES = (0.8, 1.0, 1.25)  # with their mirror images the six views of "views_recall"
MAP_SAMPLES = 5000  # test samples of the Euclidean mAP, as the NRA paper has it
Weights = Mapping[str, Tensor]
Part = tuple[Tensor, NDArray[np.int64]]  # embeddings and their classes
Classifier = tuple[Tensor, Tensor | None, NDArray[np.int64]]
NEAREST = 128  # clusters and samples that vote, as printed
K = 5
ROWS = 1024  # samples whose cosines to all are a table


@dataclass(eq=False)
class RunMeasures:
    """Measures runs of one data set. device, workers: as the runs themselves had them."""

    data: str
    device: str | None = None
    workers: int | None = None
    _whole: Dataset | None = None
    _read: dict[str, DataPart] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def _pictures(self, transform: TransformSettings, settings: RunSettings) -> DataPart:
        """All pictures as the transform has them, read once."""
        key = repr(sorted(transform.to_dict().items()))
        if key not in self._read:
            if self._whole is None:
                self._whole = load_dataset(self.data)
            made = prepare(self._whole, "all", transform, settings, validation=0)
            self._read[key] = made.train
        return self._read[key]

    def prepare(self, recipe: Recipe, cache: str) -> None:
        """Make the cache that the runs of a recipe will open, with all cores."""
        part = replace(recipe.model, pretrained=False, weights=None)
        model = make_model(replace(recipe, model=part), seed=0)
        with self._lock:
            self._pictures(
                transform_settings(recipe, model), RunSettings(cache=cache, device=self.device)
            )

    def measures(
        self, folder: Path, wanted: Sequence[str], *, classifier: str, by: str = "selected"
    ) -> dict[str, float]:
        """The wanted measures on the test part, as fractions.

        classifier: the classifier of "error". by: "selected", the weights the run chose; or
        "untrained", the features of its backbone before the first step.
        """
        run = open_run(folder)
        results = run.results
        known = results.get(by, {})
        found = {name: known[name] for name in wanted if name in known}
        rest = [name for name in wanted if name not in found]
        if rest:
            with self._lock:  # one device, one cache
                model = self._opened(run)
                weights = _weights(folder, by, results)
                features = by == "untrained"
                found |= model.measures(weights, rest, classifier=classifier, features=features)
        return {name: float(found[name]) for name in wanted if name in found}

    def curve(
        self, folder: Path, points: Sequence[tuple[int, Path]], measure: str, *, classifier: str
    ) -> list[tuple[int, float]]:
        """The measure of each kept checkpoint."""
        found = []
        with self._lock:
            model = self._opened(open_run(folder))
            for step, path in points:
                values = model.measures(read_checkpoint(path)[0], [measure], classifier=classifier)
                if measure in values:  # a softmax before its first step has no classifier
                    found.append((step, values[measure]))
        return found

    def points(
        self, folder: Path, count: int, *, part: str = "test", attribute: str | None = None
    ) -> dict[str, Any]:
        """Some embeddings of a part as the loss sees them in two dimensions, and their classes.

        With more dimensions they are those of a t-SNE, and so are the centers of the clusters of
        each class where the run has clusters. attribute: which samples have it, "1" or "0".
        As texts: a results file would have a line a number.
        """
        with self._lock:
            model = self._opened(open_run(folder))
            weights = read_checkpoint(folder / "model.safetensors")[0]
            vectors, places = model.some(weights, count, part)
            centers = model.centers()
        dataset, size = model.train if part == "train" else model.test, len(vectors)
        flat = _in_two_dimensions(torch.cat([vectors, centers]), model.seed)
        found = {"x": _as_text(flat[:size, 0]), "y": _as_text(flat[:size, 1])}
        found["labels"] = " ".join(map(str, dataset.labels[places].tolist()))
        if len(centers):
            found |= {"centers_x": _as_text(flat[size:, 0]), "centers_y": _as_text(flat[size:, 1])}
        if attribute is not None:
            names = () if dataset.attributes is None else dataset.attributes.names
            require_choice("attribute", attribute, names, what="attribute")
            assert dataset.attributes is not None
            column = dataset.attributes.values[:, names.index(attribute)]
            found["marked"] = " ".join(str(int(value >= 0.5)) for value in column[places].tolist())
        return found

    def _opened(self, run: Run) -> EvaluatedRun:
        """The run's model and the parts it had."""
        transform = TransformSettings.from_dict(run.about["transform"] or {})
        settings = run.about["settings"] | {"device": self.device, "workers": self.workers}
        whole = self._pictures(transform, RunSettings.from_dict(settings | {"split": None}))
        splits = run.splits(whole.dataset)
        if not splits.own or splits.train is None or splits.test is splits.train:
            raise ValueError(
                f"{run.folder}: expected a run on {self.data} with a test part, got split "
                f"{run.about['split']!r} of {run.about['data']}"
            )
        return EvaluatedRun(run, whole, splits.train, splits.test)


class EvaluatedRun:
    """A run's model over its parts; the embeddings of some weights are made once.

    whole: the pictures of the data set that the parts are of.
    """

    def __init__(self, run: Run, whole: DataPart, train: Dataset, test: Dataset) -> None:
        model = run.model(whole.device).module
        assert isinstance(model, Embedder)
        self.model, self.recipe, self.whole = model, run.recipe, whole
        self.train, self.test, self.seed = train, test, int(run.about["seed"])

    def measures(
        self, weights: Weights, wanted: Sequence[str], *, classifier: str, features: bool = False
    ) -> dict[str, float]:
        """The measures of these weights; features: before the embedding layer."""
        self.weights, self.features = weights, features
        self.model.load_state_dict(_own(weights))
        self._vectors: dict[tuple[str, str], Tensor] = {}
        found: dict[str, float] = {}
        for name in wanted:
            if name not in found:
                found |= self._measure(name, [each for each in wanted if at(each)], classifier)
        return found

    def some(self, weights: Weights, count: int, part: str) -> tuple[Tensor, Tensor]:
        """Embeddings of a part as in training, and their places; at most `count`, by the seed."""
        self.features, self._vectors = False, {}
        self.model.load_state_dict(_own(weights))
        vectors = self.vectors(part, "training")
        order = np.random.default_rng(self.seed).permutation(len(vectors))[:count]
        places = torch.from_numpy(np.sort(order))
        return vectors[places.to(vectors.device)], places

    def centers(self) -> Tensor:
        """The centers of the clusters of the training part; none where the run has none."""
        index, vectors = self.recipe.index, self.vectors("train", "training")
        if index is None:
            return vectors[:0]
        labels = self.train.labels.to(vectors.device)
        return class_kmeans(vectors, labels, index.clusters, seed=self.seed).centers

    def vectors(self, part: str, what: str) -> Tensor:
        """Embeddings of "train" or "test": of length 1 ("test") or as the loss sees them."""
        what = "features" if self.features else what
        if (part, what) not in self._vectors:
            data = self.whole.part(self.train if part == "train" else self.test)
            views = self.recipe.test.views
            self._vectors[part, what] = embed_all(self.model, data, views=views, what=what)
        return self._vectors[part, what]

    def over_views(self) -> Tensor:
        """Embeddings of the test part, each the mean over six views of its picture."""
        own = self.model.mirror, self.model.scales
        self.model.mirror, self.model.scales = True, SCALES
        try:
            what = "features" if self.features else "test"
            return embed_all(self.model, self.whole.part(self.test), what=what)
        finally:
            self.model.mirror, self.model.scales = own

    def _measure(self, name: str, by_k: Sequence[str], classifier: str) -> dict[str, float]:
        """The measure and those that come with it."""
        from kinspace.evaluation import attribute_precision, recall_at_k, retrieval_metrics
        from kinspace.evaluation.cluster_metrics import clustering_metrics

        labels = self.test.labels.numpy()
        if (found := at(name)) is not None:
            ks = [
                k for each in by_k if (kind := at(each)) and kind[0] == found[0] for k in kind[1:]
            ]
            if found[0] == "attributes":
                if self.test.attributes is None:
                    raise ValueError(
                        f"{name}: expected data with attributes, {self.test.name} has none"
                    )
                values = attribute_precision(
                    self.vectors("test", "test"), self.test.attributes.values, ks, metric="cosine"
                )
            elif found[0] == "impostors":
                summary = self.ranked(self.vectors("test", "test")).scores(ks).summary()
                values = {k: 1 - summary[f"precision@{k}"] for k in ks}
            elif found[0] == "train_recall":
                values = recall_at_k(self.vectors("train", "test"), self.train.labels.numpy(), ks)
            else:
                views = found[0] == "views_recall"
                vectors = self.over_views() if views else self.vectors("test", "test")
                scores = self.ranked(vectors).scores(ks).summary()
                values = {k: scores[f"recall@{k}"] for k in ks}
            return {f"{found[0]}@{k}": value for k, value in values.items()}
        if name in ("nmi", "f1", "ami"):
            return dict(clustering_metrics(self.vectors("test", "test"), labels, seed=self.seed))
        if name in ("positive_cosine", "negative_cosine"):
            positive, negative = nearest_cosines(self.vectors("test", "test"), self.test.labels)
            return {"positive_cosine": positive, "negative_cosine": negative}
        if name == "euclidean_map":
            vectors, places = self.some(self.weights, MAP_SAMPLES, "test")
            return {name: retrieval_metrics(vectors, labels[places], metric="euclidean")["map"]}
        if name.endswith("error"):
            return self._errors(classifier)
        return dict(self.ranked(self.vectors("test", "test")).scores().summary())

    def ranked(self, vectors: Tensor) -> Retrieval:
        """The test part, ready to search; with queries and gallery where the set has them."""
        return retrieval_by_roles(vectors, self.test.labels.numpy(), self.test.parts)

    def _errors(self, classifier: str) -> dict[str, float]:
        index, whole = self.recipe.index, self.whole.dataset
        # by the numbers of the whole set: a part counts its own classes
        names, truth = (
            whole.labels[part.indices_in(whole)].numpy() for part in (self.train, self.test)
        )
        weight = self.weights.get("objective.loss.weight")
        if weight is not None and len(weight) == self.train.num_classes:
            of_row = np.empty(len(weight), np.int64)
            of_row[self.train.labels.numpy()] = names
            softmax = (weight, self.weights.get("objective.loss.bias"), of_row)
        else:
            softmax = None
        found = classification_errors(
            (self.vectors("train", "training"), names),
            (self.vectors("test", "training"), truth),
            clusters=1 if index is None or index.clusters == "auto" else index.clusters,
            classifier=softmax,
            seed=self.seed,
        )
        if f"{classifier}_error" in found:
            found["error"] = found[f"{classifier}_error"]
        return found


def _in_two_dimensions(vectors: Tensor, seed: int) -> NDArray[np.float32]:
    """The vectors themselves, or a t-SNE of them, started from their principal components."""
    rows: NDArray[np.float32] = vectors.float().cpu().numpy()
    if rows.shape[1] <= 2:
        return rows
    from sklearn.manifold import TSNE

    perplexity = min(30.0, (len(rows) - 1) / 3)
    flat: NDArray[np.float32] = TSNE(
        2, perplexity=perplexity, init="pca", random_state=seed
    ).fit_transform(rows)
    return flat


def _as_text(values: NDArray[np.float32]) -> str:
    return " ".join(f"{value:.4g}" for value in values.tolist())


def _weights(folder: Path, by: str, results: Mapping[str, Any]) -> Weights:
    """A run's weights; where the last step was chosen, with all that its checkpoint has."""
    if by == "selected" and results["selected_step"] == results["steps"]:
        return read_checkpoint(folder / "last.safetensors")[0]
    return read_checkpoint(folder / f"{'model' if by == 'selected' else 'start'}.safetensors")[0]


def _own(weights: Weights) -> dict[str, Tensor]:
    """The model's tensors out of a checkpoint: of the average where there is one."""
    for prefix in ("average.", "model."):
        found = {n.removeprefix(prefix): v for n, v in weights.items() if n.startswith(prefix)}
        if found:
            return found
    return dict(weights)


def nearest_cosines(vectors: Tensor, labels: Tensor) -> tuple[float, float]:
    """The mean cosines of the samples to their nearest positive and to their nearest negative.

    ALMN's Fig. 8 has them for single pictures. A sample without a positive, or without a negative,
    is left out of that mean.

    >>> x = torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 0.0]])
    >>> nearest_cosines(x, torch.tensor([0, 0, 1]))
    (0.0, 0.6666666865348816)
    """
    directions, labels = unit(vectors), labels.to(vectors.device)
    places = torch.arange(len(labels), device=vectors.device)
    found = []
    for rows in places.split(ROWS):
        cosines = directions[rows] @ directions.T  # (rows, samples)
        same = labels[rows][:, None] == labels
        itself = rows[:, None] == places
        pair = [cosines.masked_fill(mask, -math.inf).amax(1) for mask in (~same | itself, same)]
        found.append(torch.stack(pair))
    positive, negative = torch.cat(found, 1)
    return tuple(float(each[each.isfinite()].mean()) for each in (positive, negative))  # type: ignore[return-value]


def classification_errors(
    train: Part,
    test: Part,
    *,
    clusters: int = 1,
    classifier: Classifier | None = None,
    seed: int = 0,
) -> dict[str, float]:
    """Errors by kNC with `clusters` clusters a class, soft kNN, kNN, nearest class mean, softmax.

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
