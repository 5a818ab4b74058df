"""Batches that a data set can fill: a recipe asks for so many classes, and there may be fewer."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from kinspace.recipes import Recipe, changed

__all__ = ["fitted_batches"]


class _Fit(NamedTuple):
    """What a batch is counted in, how many the recipe asks for, and how many there can be."""

    key: str
    asked: int
    most: int
    words: str


def fitted_batches(recipe: Recipe, labels: Tensor) -> tuple[Recipe, str | None]:
    """The recipe with batches that so many classes and samples can fill, and a word if it changed.

    >>> import torch
    >>> from kinspace.recipes import read_recipe
    >>> recipe, said = fitted_batches(read_recipe("nra"), torch.arange(40) % 5)
    >>> said
    'batches of 5 classes: the recipe asks for 16, and the training part fills no more'
    """
    fit = _fit(recipe, labels.bincount())
    if fit is None or not 0 < fit.most < fit.asked:
        return recipe, None  # none at all: the sampler says what is wrong
    said = f"batches of {fit.most} {fit.words}: the recipe asks for {fit.asked}, and the "
    said += "training part fills no more"
    return changed(recipe, {fit.key: fit.most}), said


def _fit(recipe: Recipe, counts: Tensor) -> _Fit | None:
    name, options = recipe.sampler.name, recipe.resolved().sampler.options
    if name == "classes_by_samples":
        samples = options["samples"]
        most = min(len(counts), int(counts.clamp(max=samples).sum()) // samples)
        return _Fit("sampler.classes", options["classes"], most, "classes")
    if name == "n_pairs":
        return _Fit("sampler.pairs", options["pairs"], int((counts >= 2).sum()), "pairs")
    if name == "random" and options["drop_last"]:
        return _Fit("sampler.batch_size", options["batch_size"], int(counts.sum()), "samples")
    if name == "neighborhoods" and recipe.index is not None:
        # the seed and the clusters of the other classes; "auto" may find one a class
        each = 1 if recipe.index.clusters == "auto" else recipe.index.clusters
        clusters = counts.clamp(max=each)
        most = 1 + int(clusters.sum() - clusters.max())
        return _Fit("sampler.clusters", options["clusters"], most, "clusters")
    return None
