"""Recipes made from others: the options --set, --loss and --regularizer, and the batch size."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from kinspace._core.checks import or_list
from kinspace.losses import LOSSES
from kinspace.models.backbones import BACKBONES
from kinspace.objective import make_loss
from kinspace.recipes.fields import require_choice
from kinspace.recipes.recipe_files import read_recipe, recipe_names
from kinspace.recipes.schema import Recipe, set_dotted

__all__ = [
    "fit_batch_size",
    "method_changes",
    "parse_set",
    "samples_per_batch",
    "with_batch_size",
    "with_changes",
    "with_loss",
    "with_regularizers",
]


def parse_set(text: str) -> tuple[str, Any]:
    """The key and the value of --set KEY=VALUE. A value that is not TOML is a text.

    >>> parse_set("loss.beta=2"), parse_set("schedule.milestones=[10, 20]")
    (('loss.beta', 2), ('schedule.milestones', [10, 20]))
    >>> parse_set("schedule.kind=cosine"), parse_set("model.start_norm=none")
    (('schedule.kind', 'cosine'), ('model.start_norm', 'none'))
    """
    key, equals, value = text.partition("=")
    key, value = key.strip(), value.strip()
    if not (key and equals and value):
        raise ValueError(f"--set: expected KEY=VALUE, like loss.beta=2, got {text!r}")
    try:
        parsed = tomllib.loads(f"value = {value}")
    except tomllib.TOMLDecodeError:
        return key, value
    return key, parsed["value"] if len(parsed) == 1 else value


def with_changes(recipe: Recipe, changes: Mapping[str, Any], *, where: str = "--set") -> Recipe:
    """The recipe with other values. Another loss.name or sampler.name starts from its defaults.

    A backbone of timm or torchvision comes with its pretrained weights. Where these or a file of
    weights are new to the recipe, its `fine_tuning` replaces its own values, but no changes, of
    this call or an earlier one. A learning rate or a number of steps ends the search for them,
    unless its budget is given too.

    >>> from kinspace.recipes import read_recipe
    >>> tuned = with_changes(read_recipe("triplet"), {"model.backbone": "resnet50"})
    >>> tuned.model.pretrained, tuned.optimizer.lr
    (True, 3e-05)
    >>> with_changes(read_recipe("almn"), {"loss.beta": 2, "optimizer.lr": 1e-5}).loss.options
    {'beta': 2.0}
    >>> with_changes(read_recipe("almn"), {"loss.bta": 2})
    Traceback (most recent call last):
    ValueError: --set: loss.bta: unknown option of almn 'bta'; did you mean 'beta'? ...
    """
    table, given = recipe.to_dict(), changes
    changes = _with_pretrained(changes)
    try:
        if _adds_weights(recipe, changes):
            replaced = tuple(f"{s}." for s in ("loss", "sampler") if f"{s}.name" in changes)
            kept = {k: v for k, v in table["fine_tuning"].items() if not k.startswith(replaced)}
            changes = {**kept, **changes}
            table["fine_tuning"] = {}
        for section in ("loss", "sampler"):
            if f"{section}.name" in changes:
                _replace_section(table, section, {"name": changes[f"{section}.name"]})
        if "index" in table and changes.get("sampler.name", "neighborhoods") != "neighborhoods":
            _replace_section(table, "index", None)
        if not {"optimizer.lr", "schedule.steps"}.isdisjoint(given):
            changes = {"search.budget": 0.0, **changes}
        for key, value in changes.items():
            _require_key(key, recipe.to_dict())
            set_dotted(table, key, value)
        table["fine_tuning"] = {k: v for k, v in table["fine_tuning"].items() if k not in given}
        return Recipe.from_dict(table)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def _require_key(key: str, table: Mapping[str, Any]) -> None:
    sections = {name: part for name, part in table.items() if isinstance(part, dict)}
    within = [f"{name}.{key}" for name, part in sections.items() if key in part]
    if "." not in key and key not in table and within:
        raise ValueError(f"unknown key {key!r}; did you mean {or_list(within)}?")
    require_choice(key, key.partition(".")[0], [*table, "index"], what="key")


def _with_pretrained(changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """The changes; a library's backbone is pretrained unless they say otherwise."""
    name = changes.get("model.backbone")
    from_library = isinstance(name, str) and name not in BACKBONES
    explicit = "model.pretrained" in changes or "model.weights" in changes
    return {**changes, "model.pretrained": True} if from_library and not explicit else changes


def _adds_weights(recipe: Recipe, changes: Mapping[str, Any]) -> bool:
    had = recipe.model.pretrained or recipe.model.weights is not None
    weights = changes.get("model.weights", "none")
    return not had and (changes.get("model.pretrained") is True or weights not in (None, "none"))


def with_loss(recipe: Recipe, name: str) -> Recipe:
    """The recipe with another loss, its options at their defaults.

    Where it has no proxies, spreads over proxies become spreads over the batch's class means.

    >>> from kinspace.recipes import read_recipe
    >>> with_loss(read_recipe("skewed_mean"), "triplet").regularizers[0].centers
    'batch'
    """
    require_choice("--loss", name, LOSSES, what="loss", listed_by="kinspace methods")
    table = recipe.to_dict()
    _replace_section(table, "loss", {"name": name})
    for part in table["regularizers"]:
        part["centers"] = part["centers"] if _has_proxies(name) else "batch"
    return Recipe.from_dict(table)


def method_changes(recipe: Recipe, name: str) -> dict[str, Any]:
    """The changes that give a recipe the method of another default recipe; {}: it keeps its own.

    That is what the two default recipes differ in with the recipe's backbone, but for what the
    recipe has changed in its own. With another loss, other regularizers or options of samples it
    keeps its method.

    >>> from kinspace.recipes import read_recipe
    >>> changes = method_changes(read_recipe("nra"), "proxy_nca")
    >>> changes["loss.name"], changes["sampler.name"], changes["model.normalize"]
    ('proxy_nca', 'random', True)
    >>> method_changes(with_changes(read_recipe("nra"), {"loss.alpha": 2}), "proxy_nca")
    {}
    """
    part = recipe.model
    backbone = {"backbone": part.backbone, "pretrained": part.pretrained, "weights": part.weights}
    changes = {f"model.{key}": value for key, value in backbone.items()}
    other = with_changes(read_recipe(name), changes)
    own = recipe
    if recipe.name in recipe_names():
        own = with_changes(read_recipe(recipe.name), changes)
    parts = ("loss", "regularizers", "samples")  # the other loss may not take these
    if any(getattr(recipe, part) != getattr(own, part) for part in parts):
        return {}
    found: dict[str, Any] = {"name": other.name, "about": other.about, "source": other.source}
    for section in ("loss", "sampler"):
        new = getattr(other, section)
        found |= {f"{section}.name": new.name}
        found |= {f"{section}.{option}": value for option, value in new.options.items()}
    for section in ("model", "optimizer", "warm_start"):
        now, before, after = (vars(getattr(each, section)) for each in (recipe, own, other))
        changed = [key for key in after if now[key] == before[key] != after[key]]
        found |= {f"{section}.{key}": after[key] for key in changed}
    return found


def with_regularizers(recipe: Recipe, texts: Iterable[str]) -> Recipe:
    """The recipe with these regularizers, NAME or NAME:WEIGHT, in place of its own.

    Spreads are over the proxies of the loss where it has some, else over the batch's class means.

    >>> from kinspace.recipes import read_recipe
    >>> [part] = with_regularizers(read_recipe("contrastive"), ["density:10"]).regularizers
    >>> part.name, part.weight
    ('density', 10.0)
    """
    centers = "proxies" if _has_proxies(recipe.loss.name) else "batch"
    table = recipe.to_dict()
    parts = []
    for text in texts:
        name, colon, weight = text.partition(":")
        try:
            number = float(weight) if colon else 1.0
            parts.append({"name": name, "weight": number, "centers": centers})
        except ValueError:
            raise ValueError(
                f"--regularizer: expected NAME or NAME:WEIGHT, like density:10, got {text!r}"
            ) from None
    _replace_section(table, "regularizers", parts)
    try:
        return Recipe.from_dict(table)
    except ValueError as error:
        raise ValueError(f"--regularizer: {error}") from None


def _replace_section(table: dict[str, Any], section: str, value: Any) -> None:
    """Replace a section, and drop its keys from `tune` and `fine_tuning`."""
    table[section] = value
    for name in ("tune", "fine_tuning"):
        keys = [key for key in table[name] if not key.startswith(f"{section}.")]
        table[name] = {key: table[name][key] for key in keys}


def _has_proxies(loss: str) -> bool:
    with torch.random.fork_rng(
        devices=[]
    ):  # the random proxies leave the run's numbers as they are
        module = make_loss(loss, {}, num_classes=2, dim=2)
    return any(isinstance(getattr(module, name, None), Tensor) for name in ("proxies", "weight"))


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
    counts = labels.bincount()
    fit = _fit(recipe, counts)
    if fit is not None and fit.most < 2 and recipe.sampler.name == "classes_by_samples":
        return _fit_samples(recipe, counts)
    if fit is None or not 0 < fit.most < fit.value:
        return recipe, None  # for 0 the sampler raises the error
    message = f"batches of {fit.most} {fit.words}: the recipe asks for {fit.value}, and the "
    message += "training part fills no more"
    return with_changes(recipe, {fit.key: fit.most}), message


def _fit_samples(recipe: Recipe, counts: Tensor) -> tuple[Recipe, str | None]:
    """The recipe with as many samples of a class as the second largest class has.

    For a few small classes: batches of two classes need no more.
    """
    _, classes, each = _groups(recipe)
    fewer = int(counts.sort(descending=True).values[1]) if len(counts) > 1 else 0
    if not 2 <= fewer < each:
        return recipe, None
    most = min(classes, len(counts), int(counts.clamp(max=fewer).sum()) // fewer)
    message = f"batches of {most} classes with {fewer} pictures of each: the recipe asks for "
    message += f"{classes} with {each}, and the training part fills no more"
    return with_changes(recipe, {"sampler.classes": most, "sampler.samples": fewer}), message


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
