"""`kinspace.sklearn.MetricLearner` as scikit-learn's own checks and its users take it."""

import pickle
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_iris, load_wine
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from kinspace.sklearn import MetricLearner


@parametrize_with_checks([MetricLearner(steps=3)])
def test_passes_the_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


def noisy_wine() -> tuple[NDArray[Any], NDArray[Any]]:
    """Wine with columns of noise, which a distance takes as seriously as the others."""
    X, y = load_wine(return_X_y=True)
    noise = np.random.default_rng(0).standard_normal((len(X), 40))
    return np.hstack([X, noise]), y


@pytest.mark.parametrize("method", ["nra", "proxy_anchor", "contrastive", "magnet", "density"])
def test_classifies_rows_better_than_their_distances(method: str) -> None:
    X, y = noisy_wine()
    train, test = np.arange(len(X)) % 2 == 0, np.arange(len(X)) % 2 == 1
    learner = MetricLearner(method, steps=150, random_state=0)
    before = StandardScaler()
    scores = [
        make_pipeline(each, KNeighborsClassifier(1)).fit(X[train], y[train]).score(X[test], y[test])
        for each in (learner, before)
    ]
    assert scores[0] > scores[1]


def test_is_searched_in_a_pipeline() -> None:
    X, y = load_iris(return_X_y=True)
    grid = {
        "metriclearner__method": ["nra", "contrastive"],
        "metriclearner__options": [None, {"sampler.samples": 4}],
    }
    model = make_pipeline(MetricLearner(steps=20, random_state=0), KNeighborsClassifier())
    found = GridSearchCV(model, grid, cv=2).fit(X, y)
    assert found.best_score_ > 0.9
    assert cross_val_score(MetricLearner(steps=20, random_state=0), X, y, cv=2).min() > 0.8


def test_words_are_classes_and_a_seed_repeats_the_fit() -> None:
    X, y = load_iris(return_X_y=True)
    words = np.array(["setosa", "versicolor", "virginica"])[y]
    learner = MetricLearner(steps=20, hidden=(16,), n_components=3, random_state=1).fit(X, words)
    again = MetricLearner(steps=20, hidden=(16,), n_components=3, random_state=1).fit(X, y)
    assert np.array_equal(learner.transform(X), again.transform(X))
    assert np.array_equal(pickle.loads(pickle.dumps(learner)).transform(X), learner.transform(X))
    assert learner.classes_.tolist() == ["setosa", "versicolor", "virginica"]
    assert list(learner.get_feature_names_out()) == [f"metriclearner{i}" for i in range(3)]


def test_finds_the_nearest_training_rows() -> None:
    X, y = load_iris(return_X_y=True)
    learner = MetricLearner(steps=20, random_state=0).fit(X, y)
    distances, rows = learner.kneighbors(X[:3], n_neighbors=2)
    assert rows[:, 0].tolist() == [0, 1, 2]
    assert np.allclose(distances[:, 0], 0, atol=1e-3)
    assert all(row not in others for row, others in enumerate(learner.kneighbors()[1]))


def test_wrong_options_are_errors_that_say_what_to_do() -> None:
    X, y = load_iris(return_X_y=True)
    for options, words in (
        ({"method": "nrs"}, "did you mean 'nra'"),
        ({"method": "bier"}, "expected a method of one embedding, got 'bier'"),
        ({"options": {"loss.alfa": 2}}, "did you mean 'alpha'"),
        ({"steps": 0}, "steps: expected"),
    ):
        with pytest.raises(ValueError, match=words):
            MetricLearner(**options).fit(X, y)
    with pytest.raises(ValueError, match="y: expected two classes or more, got one class"):
        MetricLearner(steps=1).fit(X, np.zeros(len(X), int))
