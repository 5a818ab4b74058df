"""Recipes made from others, as by the options --set, --loss and --regularizer."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from kinspace.losses import LOSSES
from kinspace.models.backbones import BACKBONES
from kinspace.objective import make_loss
from kinspace.recipes.fields import require_choice
from kinspace.recipes.schema import Recipe, set_dotted

__all__ = ["parse_set", "with_changes", "with_loss", "with_regularizers"]


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
    weights are new to the recipe, its `fine_tuning` replaces its own values, but not `changes`.

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
    table = recipe.to_dict()
    changes = _with_pretrained(changes)
    try:
        if _adds_weights(recipe, changes):
            changes = {**table["fine_tuning"], **changes}
            table["fine_tuning"] = {}
        for section in ("loss", "sampler"):
            if f"{section}.name" in changes:
                _replace_section(table, section, {"name": changes[f"{section}.name"]})
        if "index" in table and changes.get("sampler.name", "neighborhoods") != "neighborhoods":
            _replace_section(table, "index", None)
        for key, value in changes.items():
            require_choice(key, key.partition(".")[0], [*recipe.to_dict(), "index"], what="key")
            set_dotted(table, key, value)
        return Recipe.from_dict(table)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


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
    require_choice("--loss", name, LOSSES, what="loss")
    table = recipe.to_dict()
    _replace_section(table, "loss", {"name": name})
    for part in table["regularizers"]:
        part["centers"] = part["centers"] if _has_proxies(name) else "batch"
    return Recipe.from_dict(table)


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
