"""How large batches are, and those that a data set can fill: it may have fewer classes."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from kinspace.recipes import Recipe, with_changes

__all__ = ["fit_batch_size", "samples_per_batch", "with_batch_size"]


class _Fit(NamedTuple):
    """What a batch is counted in, how many the recipe asks for, and how many there can be."""

    key: str
    asked: int
    most: int
    words: str


def fit_batch_size(recipe: Recipe, labels: Tensor) -> tuple[Recipe, str | None]:
    """The recipe with batches that so many classes and samples can fill, and a word if it changed.

    >>> import torch
    >>> from kinspace.recipes import read_recipe
    >>> recipe, said = fit_batch_size(read_recipe("nra"), torch.arange(40) % 5)
    >>> said
    'batches of 5 classes: the recipe asks for 16, and the training part fills no more'
    """
    fit = _fit(recipe, labels.bincount())
    if fit is None or not 0 < fit.most < fit.asked:
        return recipe, None  # none at all: the sampler says what is wrong
    said = f"batches of {fit.most} {fit.words}: the recipe asks for {fit.asked}, and the "
    said += "training part fills no more"
    return with_changes(recipe, {fit.key: fit.most}), said


def with_batch_size(recipe: Recipe, size: int) -> Recipe:
    """The recipe with batches of `size` samples, composed as before.

    >>> from kinspace.recipes import read_recipe
    >>> dict(with_batch_size(read_recipe("nra"), 64).sampler.options)["classes"]
    8
    """
    key, _, each = _groups(recipe)
    if size % each:
        raise ValueError(f"--batch: expected a multiple of {each}, the samples a group, got {size}")
    return with_changes(recipe, {f"sampler.{key}": size // each}, where="--batch")


def samples_per_batch(recipe: Recipe) -> int:
    """How many samples a batch has; of whole classes, about so many.

    >>> from kinspace.recipes import read_recipe
    >>> samples_per_batch(with_batch_size(read_recipe("nra"), 64))
    64
    """
    _, count, each = _groups(recipe)
    return count * each


def _groups(recipe: Recipe) -> tuple[str, int, int]:
    """The option that says how many groups a batch has, that number, and the samples of each."""
    name, options = recipe.sampler.name, recipe.resolved().sampler.options
    keys = {"classes_by_samples": "classes", "n_pairs": "pairs", "neighborhoods": "clusters"}
    key = keys.get(name, "batch_size")
    each = 2 if name == "n_pairs" else options.get("samples", 1)
    return key, int(options[key]), int(each)


def _fit(recipe: Recipe, counts: Tensor) -> _Fit | None:
    name, options = recipe.sampler.name, recipe.resolved().sampler.options
    key, asked, each = _groups(recipe)
    if name == "classes_by_samples":
        most = min(len(counts), int(counts.clamp(max=each).sum()) // each)
        return _Fit(f"sampler.{key}", asked, most, "classes")
    if name == "n_pairs":
        return _Fit(f"sampler.{key}", asked, int((counts >= 2).sum()), "pairs")
    if name == "random" and options["drop_last"]:
        return _Fit(f"sampler.{key}", asked, int(counts.sum()), "samples")
    if name == "neighborhoods" and recipe.index is not None:
        # the seed and the clusters of the other classes; "auto" may find one a class
        of_class = 1 if recipe.index.clusters == "auto" else recipe.index.clusters
        clusters = counts.clamp(max=of_class)
        most = 1 + int(clusters.sum() - clusters.max())
        return _Fit(f"sampler.{key}", asked, most, "clusters")
    return None
