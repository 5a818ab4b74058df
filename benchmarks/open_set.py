"""Known or unknown: what each score of a picture is worth, on the features of a frozen backbone.

    python benchmarks/open_set.py DATA --classes 15 --pictures 40 --draws 8

Of DATA, some classes drawn at random are the gallery, the first pictures of each; the others of
those classes are queries that should be named, and the same number of each further class are
strangers. The limit of a score lets one stranger in six through.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

import kinspace
from kinspace.data import load_dataset
from kinspace.inference import embed_dataset

Array = NDArray[np.float64]
Scores = tuple[Array, Array]  # of the known queries and of the strangers, (queries, classes)


def unit(x: Array) -> Array:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def evidence(queries: Array, gallery: Array, labels: NDArray[np.int64]) -> Array:
    """The mean cosine to the five nearest pictures of each class, as kinspace has it."""
    cosines = unit(queries) @ unit(gallery).T
    classes = range(labels.max() + 1)
    return np.stack([np.sort(cosines[:, labels == c], 1)[:, -5:].mean(1) for c in classes], 1)


def scores(
    gallery: Array, labels: NDArray[np.int64], known: Array, strange: Array
) -> dict[str, Scores]:
    """Each score of all queries."""

    def both(score: Callable[[Array], Array]) -> Scores:
        return score(known), score(strange)

    found = {"evidence": both(lambda x: evidence(x, gallery, labels))}
    middle = gallery.mean(0)
    means = np.stack([gallery[labels == c].mean(0) for c in range(labels.max() + 1)])
    within = gallery - means[labels]
    for shrinkage in (0.3, 1.0, 3.0):
        covariance = within.T @ within / len(within)
        covariance += shrinkage * np.trace(covariance) / len(covariance) * np.eye(len(covariance))
        values, vectors = np.linalg.eigh(covariance)
        root = vectors / np.sqrt(values)
        centers = (means - middle) @ root
        axes = np.linalg.svd(centers - centers.mean(0), full_matrices=False)[2][: len(means) - 1].T
        for name, projection in (("whitened", root), ("discriminants", root @ axes)):
            own = (gallery - middle) @ projection
            found[f"{name}, shrinkage {shrinkage:g}"] = both(
                lambda x, p=projection, o=own: evidence((x - middle) @ p, o, labels)
            )
        found[f"Mahalanobis, shrinkage {shrinkage:g}"] = both(
            lambda x, r=root, c=centers: -np.square(((x - middle) @ r)[:, None] - c).sum(2)
        )
    for strength in (10.0, 100.0):
        model = LogisticRegression(C=strength, max_iter=500).fit(gallery, labels)
        found[f"logistic regression, C {strength:g}, probability"] = both(model.predict_proba)
        found[f"logistic regression, C {strength:g}, logit"] = both(model.decision_function)
    return found


def judged(known: Array, strange: Array, labels: NDArray[np.int64]) -> tuple[float, float]:
    """The share that is of the first class, and that is so and above the strangers' limit."""
    right = known.argmax(1) == labels
    limit = np.quantile(strange.max(1), 5 / 6)
    return float(right.mean()), float((right & (known.max(1) > limit)).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("data")
    parser.add_argument("--backbone", default="tf_efficientnet_lite0")
    parser.add_argument("--classes", type=int, default=15)
    parser.add_argument("--pictures", type=int, default=40, help="of a class, in the gallery")
    parser.add_argument("--draws", type=int, default=8)
    options = parser.parse_args()
    data = load_dataset(options.data)
    table = embed_dataset(kinspace.load(options.backbone), data)
    x, y = table.vectors.astype(np.float64), np.asarray(table.labels)
    found: dict[str, list[tuple[float, float]]] = {}
    for draw in range(options.draws):
        random = np.random.default_rng(draw)
        classes = random.permutation(data.num_classes)
        place = np.argsort(classes)[y]  # the first are the gallery's
        rank = np.empty(len(y), np.int64)  # of a picture within its class
        for c in range(data.num_classes):
            rank[y == c] = random.permutation(int((y == c).sum()))
        ours, later = place < options.classes, rank >= options.pictures
        parts = x[ours & ~later], place[ours & ~later], x[ours & later], x[~ours & later]
        for name, (known, strange) in scores(*parts).items():
            found.setdefault(name, []).append(judged(known, strange, place[ours & later]))
    print("| score | best class right, % | named right, one stranger in six let through, % |")
    print("| --- | ---: | ---: |")
    for name, rows in sorted(found.items(), key=lambda item: -np.mean([r[1] for r in item[1]])):
        (right, named), spread = 100 * np.mean(rows, 0), 100 * np.std(rows, 0, ddof=1)
        print(f"| {name} | {right:.1f} ± {spread[0]:.1f} | {named:.1f} ± {spread[1]:.1f} |")


if __name__ == "__main__":
    main()
