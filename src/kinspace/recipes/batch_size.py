"""The batch size of a recipe, and its limit for small data sets."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from kinspace.recipes.overrides import with_changes
from kinspace.recipes.schema import Recipe

__all__ = ["fit_batch_size", "samples_per_batch", "with_batch_size"]


class _Fit(NamedTuple):
    """The option that sets the size, its value in the recipe, and the most that the data allow."""

    key: str
    value: int
    most: int
    words: str


def fit_batch_size(recipe: Recipe, labels: Tensor) -> tuple[Recipe, str | None]:
    """The recipe with batches that the data can fill, and a message if they are smaller.

    >>> import torch
    >>> from kinspace.recipes import read_recipe
    >>> recipe, message = fit_batch_size(read_recipe("nra"), torch.arange(40) % 5)
    >>> message
    'batches of 5 classes: the recipe asks for 16, and the training part fills no more'
    """
    fit = _fit(recipe, labels.bincount())
    if fit is None or not 0 < fit.most < fit.value:
        return recipe, None  # for 0 the sampler raises the error
    message = f"batches of {fit.most} {fit.words}: the recipe asks for {fit.value}, and the "
    message += "training part fills no more"
    return with_changes(recipe, {fit.key: fit.most}), message


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
    """The samples of a batch; with batches of whole classes, about that many.

    >>> from kinspace.recipes import read_recipe
    >>> samples_per_batch(with_batch_size(read_recipe("nra"), 64))
    64
    """
    _, count, each = _groups(recipe)
    return count * each


def _groups(recipe: Recipe) -> tuple[str, int, int]:
    """The option for the number of groups in a batch, its value, and the samples per group."""
    name, options = recipe.sampler.name, recipe.resolved().sampler.options
    keys = {"classes_by_samples": "classes", "n_pairs": "pairs", "neighborhoods": "clusters"}
    key = keys.get(name, "batch_size")
    each = 2 if name == "n_pairs" else options.get("samples", 1)
    return key, int(options[key]), int(each)


def _fit(recipe: Recipe, counts: Tensor) -> _Fit | None:
    name, options = recipe.sampler.name, recipe.resolved().sampler.options
    key, value, each = _groups(recipe)
    if name == "classes_by_samples":
        most = min(len(counts), int(counts.clamp(max=each).sum()) // each)
        return _Fit(f"sampler.{key}", value, most, "classes")
    if name == "n_pairs":
        return _Fit(f"sampler.{key}", value, int((counts >= 2).sum()), "pairs")
    if name == "random" and options["drop_last"]:
        return _Fit(f"sampler.{key}", value, int(counts.sum()), "samples")
    if name == "neighborhoods" and recipe.index is not None:
        # the seed and the clusters of other classes; "auto" may find one per class
        of_class = 1 if recipe.index.clusters == "auto" else recipe.index.clusters
        clusters = counts.clamp(max=of_class)
        most = 1 + int(clusters.sum() - clusters.max())
        return _Fit(f"sampler.{key}", value, most, "clusters")
    return None
