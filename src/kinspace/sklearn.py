"""Metric learning as a scikit-learn transformer: rows of numbers to an embedding.

    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline

    model = make_pipeline(MetricLearner("proxy_anchor"), KNeighborsClassifier())
    model.fit(X, y).predict(X_new)

`fit` takes the loss, regularizers, batches and optimizer of a recipe (`kinspace methods`) and
trains a net of linear layers in memory. It starts from the principal components of the standardized
columns, so that without a step the distances are those of the data.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from kinspace._core import checks
from kinspace._core.device import pick_device
from kinspace._core.vectors import unit
from kinspace.data.in_memory import from_samples
from kinspace.evaluation.retrieval import recall_at_k
from kinspace.recipes import Recipe, read_recipe, with_changes
from kinspace.recipes.overrides import fit_batch_size
from kinspace.training.components import make_plan, make_state, original_densities
from kinspace.training.data_parts import DataPart
from kinspace.training.loop import Hooks, fit
from kinspace.training.settings import RunSettings

__all__ = ["MetricLearner"]

DTYPES = (np.float64, np.float32)
FAR = 1.0  # the constant component, in the mean length of standardized rows


class MetricLearner(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """An embedding of rows in which those of a class are near each other.

    method: a recipe by its name, as of `kinspace.train`; not an ensemble within one backbone.
    n_components: the dimensions; None: one more than columns, so that vectors of length 1 have as
        much freedom as the rows, at most 64.
    hidden: the widths of hidden layers; without any the embedding is a linear map.
    steps: of the optimizer. learning_rate: None: the recipe's own.
    options: other values of the recipe, {"loss.margin": 0.2, "sampler.samples": 4}.
    normalize: give vectors of length 1, by which most methods train.
    n_neighbors: the default of `kneighbors`.
    random_state, device: as in scikit-learn and PyTorch.

    >>> X = np.repeat(np.eye(3), 8, axis=0) + np.linspace(0, 0.3, 72).reshape(24, 3)
    >>> learner = MetricLearner("contrastive", steps=20, random_state=0).fit(X, np.arange(24) // 8)
    >>> learner.transform(X).shape, learner.score(X, np.arange(24) // 8)
    ((24, 4), 1.0)
    """

    def __init__(  # noqa: PLR0913 - the parameters of the estimator
        self,
        method: str = "nra",
        *,
        n_components: int | None = None,
        hidden: Sequence[int] = (),
        steps: int = 300,
        learning_rate: float | None = None,
        options: Mapping[str, Any] | None = None,
        normalize: bool = True,
        n_neighbors: int = 5,
        random_state: Any = None,
        device: str | None = None,
    ) -> None:
        self.method = method
        self.n_components = n_components
        self.hidden = hidden
        self.steps = steps
        self.learning_rate = learning_rate
        self.options = options
        self.normalize = normalize
        self.n_neighbors = n_neighbors
        self.random_state = random_state
        self.device = device

    def fit(self, X: Any, y: Any) -> MetricLearner:
        """Learn from rows X (rows, columns) and their classes y (rows,), numbers or words."""
        X, y = validate_data(self, X, y, dtype=list(DTYPES), ensure_min_samples=2)
        check_classification_targets(y)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(
                f"y: expected two classes or more, got one class: {self.classes_.tolist()[0]!r}"
            )
        seed = _seed(self.random_state)
        recipe = self._recipe(seed)
        device = pick_device(self.device)
        columns = X.shape[1]
        dim = self.n_components or min(columns + 1, 64)
        self.network_ = _network(X, dim, self.hidden, seed, normalize=recipe.model.normalize)
        part = _part(X, numbers, device)
        recipe, _ = fit_batch_size(recipe, part.dataset.labels)
        with torch.random.fork_rng(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of small batches, which the data make
            _train(recipe, self.network_, part, dim, seed, device)
        self.network_.cpu().eval()
        self._n_features_out = dim
        self.neighbors_ = NearestNeighbors(n_neighbors=self.n_neighbors)
        self.neighbors_.fit(self._embed(X))
        return self

    def transform(self, X: Any) -> NDArray[Any]:
        """The embeddings (rows, n_components) of rows."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=list(DTYPES), reset=False)
        return self._embed(X)

    def kneighbors(
        self, X: Any = None, n_neighbors: int | None = None, return_distance: bool = True
    ) -> Any:
        """Distances and rows of the nearest rows of the training, as of scikit-learn's neighbors.

        X None: of each training row the nearest others.
        """
        check_is_fitted(self)
        vectors = None if X is None else self.transform(X)
        return self.neighbors_.kneighbors(vectors, n_neighbors, return_distance)

    def score(self, X: Any, y: Any) -> float:
        """Recall@1: how often the nearest other row of X is of the same class."""
        labels = np.unique(np.asarray(y), return_inverse=True)[1].reshape(-1)
        return recall_at_k(self.transform(X), labels, (1,), metric="euclidean")[1]

    def _recipe(self, seed: int) -> Recipe:
        recipe = read_recipe(self.method)
        steps = checks.integer("steps", self.steps, at_least=1)
        changes: dict[str, Any] = {"search.budget": 0.0, "schedule.steps": steps}
        if self.learning_rate is not None:
            changes["optimizer.lr"] = checks.positive("learning_rate", self.learning_rate)
        recipe = with_changes(recipe, {**changes, **(self.options or {})}, where="options")
        if recipe.model.groups is not None:
            raise ValueError(
                f"method: expected a method of one embedding, got {self.method!r}, an ensemble "
                "of learners in a backbone"
            )
        for name in ("n_components", "n_neighbors"):
            if getattr(self, name) is not None:
                checks.integer(name, getattr(self, name), at_least=1)
        return recipe

    def _embed(self, X: NDArray[Any]) -> NDArray[Any]:
        with torch.no_grad():
            rows = self.network_(_tensor(X))
        vectors = unit(rows) if self.normalize else rows
        found: NDArray[Any] = vectors.numpy().astype(X.dtype)
        return found

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.non_deterministic = False
        return tags


class _Standardize(nn.Module):
    """Columns less their mean, over their standard deviation; constant columns become 0."""

    def __init__(self, X: NDArray[Any]) -> None:
        super().__init__()
        mean, std = X.mean(0, dtype=np.float64), X.std(0, dtype=np.float64)
        still = std <= 1e-12 * np.abs(X).max(0).clip(1e-300)
        scale = np.where(still, 0.0, 1 / np.where(still, 1.0, std))
        self.register_buffer("mean", torch.from_numpy(mean))
        self.register_buffer("scale", torch.from_numpy(scale))

    def forward(self, rows: Tensor) -> Tensor:
        found = (rows.double() - self.mean) * self.scale  # type: ignore[operator]
        return found.float()


class _Unit(nn.Module):
    """Length 1 in training; `MetricLearner` decides about it after."""

    def forward(self, vectors: Tensor) -> Tensor:
        return unit(vectors) if self.training else vectors


def _network(
    X: NDArray[Any], dim: int, hidden: Sequence[int], seed: int, *, normalize: bool
) -> nn.Sequential:
    generator = torch.Generator().manual_seed(seed)
    first = _Standardize(X)
    layers: list[nn.Module] = [first]
    width = X.shape[1]
    for size in hidden:
        layers += [_linear(width, checks.integer("hidden", size, at_least=1), generator), nn.ReLU()]
        width = size
    last = _linear(width, dim, generator)
    if not hidden:
        with torch.no_grad():
            _set_components(last, first(_tensor(X)).numpy())
    return nn.Sequential(*layers, last, *([_Unit()] if normalize else []))


def _linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, inputs, outputs)
    nn.init.normal_(layer.weight, std=(2 / inputs) ** 0.5, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer


def _set_components(layer: nn.Linear, rows: NDArray[Any]) -> None:
    """The principal components as the rows of the layer.

    Of rows that are left the first is constant: at length 1 the vectors then keep how long they
    were. Further ones stay random.
    """
    _, _, components = np.linalg.svd(rows.astype(np.float64), full_matrices=False)
    count = min(len(components), layer.out_features)
    found = components[:count]
    signs = np.sign(found[np.arange(count), np.abs(found).argmax(1)])  # the same on every machine
    layer.weight[:count] = torch.from_numpy((found * signs[:, None]).astype(np.float32))
    if count < layer.out_features:
        layer.weight[count] = 0
        layer.bias[count] = FAR * layer.in_features**0.5


def _tensor(X: NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(X if X.flags.writeable else X.copy()))


def _part(X: NDArray[Any], numbers: NDArray[Any], device: torch.device) -> DataPart:
    rows = _tensor(X).to(device)
    dataset = from_samples(TensorDataset(_tensor(X), torch.from_numpy(numbers.astype(np.int64))))
    return DataPart(dataset, None, device, features=rows[None])


def _train(
    recipe: Recipe, network: nn.Module, part: DataPart, dim: int, seed: int, device: torch.device
) -> None:
    settings = RunSettings(seed=seed, device=str(device), quiet=True)
    network.to(device)
    original = None
    if any(term.name == "density" for term in recipe.regularizers):
        original = original_densities(network, part).cpu()
    state = make_state(recipe, settings, network, part, dim=dim, original=original)
    fit(state, make_plan(recipe, settings), part, None, Hooks())
    if state.average is not None:
        network.load_state_dict(state.average.model.state_dict())


def _seed(random_state: Any) -> int:
    """A number of `random_state`: itself, or drawn from it."""
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))
