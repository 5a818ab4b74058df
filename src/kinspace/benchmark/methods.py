"""A method in the benchmark: its loss, its recipe, and the ranges that its trials draw from.

A loss of the user's is a Python file with one class or one function:

    def pull_and_push(embeddings, labels, *, margin=0.5): ...     # a scalar tensor

    class PullAndPush(nn.Module):                                 # or with state
        def __init__(self, num_classes, dim, *, margin=0.5): ...
        def forward(self, embeddings, labels): ...

and may say more:

    RECIPE = {"sampler.name": "random"}     other values of the recipe
    RANGES = {"loss.margin": (0.1, 2.0)}    in place of the ranges below

The ranges follow one rule for every method, so that none is searched more closely than another:
the learning rate and that of the loss's parameters from a tenth to ten times the recipe's; the
weight of each regularizer and every positive number among the options of the loss from a quarter to
four times, as far as the loss takes them. All are uniform in the logarithm. The first trial has the
recipe's own values.
"""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import math
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

import numpy as np
import torch
from torch import Tensor, nn

from kinspace._core import checks
from kinspace.losses import LOSSES
from kinspace.objective import make_loss
from kinspace.recipes import Range, Recipe, read_recipe, with_changes
from kinspace.recipes.fields import SET_BY_THE_RUN, default_options
from kinspace.recipes.recipe_files import recipe_names, recipe_of_loss

__all__ = [
    "Method",
    "draw",
    "in_losses",
    "own_method",
    "search_space",
    "shipped_method",
    "shipped_names",
]

RATE_FACTOR = 10.0  # of learning rates
FACTOR = 4.0  # of other numbers
FIXED = ("eps",)  # options that keep a value finite


@dataclass(frozen=True)
class Method:
    """A loss with its recipe, and the ranges of the recipe's keys that its trials draw from.

    cls: a user's loss, which `LOSSES` does not have. digest: of its file.
    """

    name: str
    recipe: Recipe
    ranges: Mapping[str, Range]
    cls: type[nn.Module] | None = None
    digest: str = ""


def shipped_names() -> list[str]:
    """The default recipes of one loss without regularizers, ensembles left out.

    Ensembles need a backbone that they train. A regularizer stays where its loss collapses alone.

    >>> "proxy_anchor" in shipped_names(), "bier" in shipped_names(), "density" in shipped_names()
    (True, False, False)
    """
    recipes = map(read_recipe, recipe_names("defaults"))
    return [each.name for each in recipes if each.name in LOSSES and each.model.groups is None]


def shipped_method(name: str, changes: Mapping[str, Any]) -> Method:
    """A method of the library.

    >>> list(shipped_method("circle", {}).ranges)
    ['optimizer.lr', 'loss.margin', 'loss.scale']
    """
    checks.choice("against", name, shipped_names())
    recipe = with_changes(read_recipe(name), changes, where="benchmark")
    return Method(name, recipe, search_space(recipe))


def own_method(file: str | Path, changes: Mapping[str, Any]) -> Method:
    """The loss in a file of the user's (see the module's docstring)."""
    text, _, wanted = str(file).partition(".py:")
    path = Path(f"{text}.py" if wanted else text).expanduser()
    module = _load(path)
    cls = _as_module(_the_loss(module, path, wanted), str(path))
    name = path.stem if path.stem not in LOSSES else f"{path.stem}_of_file"
    given = {**changes, **_table(module, "RECIPE", path)}
    try:
        with in_losses(name, cls):
            recipe = with_changes(recipe_of_loss(name, about=f"the loss in {path.name}"), given)
            ranges = search_space(recipe) | _ranges(_table(module, "RANGES", path))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    digest = hashlib.blake2b(path.read_bytes(), digest_size=16).hexdigest()
    return Method(name, recipe, ranges, cls, digest)


@contextmanager
def in_losses(name: str, cls: type[nn.Module] | None) -> Iterator[None]:
    """`LOSSES` with a user's loss, by which recipes find it, until the block ends."""
    if cls is None:
        yield
        return
    LOSSES[name] = cls
    try:
        yield
    finally:
        del LOSSES[name]


def search_space(recipe: Recipe) -> dict[str, Range]:
    """What the trials of a recipe draw: the same rule for every method (module's docstring).

    >>> space = search_space(read_recipe("contrastive"))
    >>> list(space), space["loss.margin"]
    (['optimizer.lr', 'loss.margin'], Range(low=0.125, high=2.0, log=True, choices=None))
    """
    rates = recipe.optimizer
    found = {"optimizer.lr": _log(rates.lr / RATE_FACTOR, rates.lr * RATE_FACTOR)}
    name, options = recipe.loss.name, recipe.loss.options
    if any(True for _ in _built(name, options).parameters()):
        found["optimizer.loss"] = _log(rates.loss / RATE_FACTOR, rates.loss * RATE_FACTOR)
    for part in recipe.regularizers:
        low, high = part.weight / FACTOR, part.weight * FACTOR
        found[f"regularizers.{part.name}.weight"] = _log(low, high)
    for key, value in {**default_options(LOSSES[name]), **options}.items():
        if isinstance(value, float) and value > 0 and key not in FIXED:
            ends = [
                _valid_end(name, options, key, value, factor) for factor in (1 / FACTOR, FACTOR)
            ]
            if ends[0] < ends[1]:
                found[f"loss.{key}"] = _log(*ends)
    return found


def draw(method: Method, trial: int, seed: int) -> dict[str, Any]:
    """The changes of a trial: the recipe's own values for trial 0, else drawn from the ranges.

    >>> method = shipped_method("contrastive", {})
    >>> draw(method, 0, seed=0)
    {}
    >>> draw(method, 1, seed=0) == draw(method, 1, seed=0) != draw(method, 2, seed=0)
    True
    """
    if trial == 0:
        return {}
    rng = np.random.default_rng([seed, trial])  # the same rates for every method
    return {key: _value(span, float(rng.random())) for key, span in method.ranges.items()}


def _value(span: Range, place: float) -> Any:
    if span.choices is not None:
        return span.choices[int(place * len(span.choices))]
    low, high = span.low, span.high
    assert low is not None
    assert high is not None
    found: float
    if span.log:
        found = math.exp(math.log(low) + place * (math.log(high) - math.log(low)))
    else:
        found = low + place * (high - low)
    whole = isinstance(low, int) and isinstance(high, int)
    return round(found) if whole else float(f"{found:.3g}")


def _log(low: float, high: float) -> Range:
    return Range(low=float(f"{low:.3g}"), high=float(f"{high:.3g}"), log=True)


def _built(name: str, options: Mapping[str, Any]) -> nn.Module:
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make_loss(name, options, num_classes=2, dim=2)


def _valid_end(
    name: str, options: Mapping[str, Any], key: str, value: float, factor: float
) -> float:
    """The end of a range: the value times the factor, nearer to it where that is not valid."""
    for power in (1.0, 0.5, 0.25):
        try:
            end: float = value * factor**power
            _built(name, {**options, key: end})
        except ValueError:
            continue
        return end
    return value


def _load(path: Path) -> ModuleType:
    if path.suffix != ".py" or not path.is_file():
        raise ValueError(
            f"loss: expected a Python file with a loss or one of {', '.join(shipped_names())}, "
            f"got {str(path)!r}"
        )
    spec = importlib.util.spec_from_file_location(f"kinspace_loss_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and type hints look their module up
    spec.loader.exec_module(module)
    return module


def _the_loss(module: ModuleType, path: Path, wanted: str) -> Callable[..., Any]:
    found: dict[str, Callable[..., Any]] = {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("_")
        and getattr(value, "__module__", None) == module.__name__
        and _is_loss(value)
    }
    if wanted in found:
        return found[wanted]
    if len(found) == 1 and not wanted:
        return next(iter(found.values()))
    what = f"{wanted!r} in it" if wanted else "one loss in it"
    there = f"{', '.join(found)}; write {path}:{next(iter(found))}" if found else "none"
    raise ValueError(
        f"{path}: expected {what}, a class of torch.nn or a function of (embeddings, labels), "
        f"got {there}"
    )


def _is_loss(value: Any) -> bool:
    if isinstance(value, type):
        return issubclass(value, nn.Module)
    if not inspect.isfunction(value):
        return False
    return list(inspect.signature(value).parameters)[:2] == ["embeddings", "labels"]


def _as_module(loss: Callable[..., Any], where: str) -> type[nn.Module]:
    """The loss as a module class with typed keyword options, as recipes take them."""
    is_class = isinstance(loss, type)
    given = list(inspect.signature(loss).parameters.values())
    options = given if is_class else given[2:]
    open_ended = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    options = [each for each in options if each.kind not in open_ended]
    for each in options:
        if each.default is inspect.Parameter.empty and each.name not in SET_BY_THE_RUN:
            raise ValueError(
                f"{where}: expected a default of the option {each.name!r} of {loss.__name__}; "
                "only num_classes and dim are given by the benchmark"
            )

    class UserLoss(nn.Module):
        def __init__(self, **values: Any) -> None:
            super().__init__()
            self.loss = loss(**values) if is_class else None
            self.options = values

        def forward(self, embeddings: Tensor, labels: Tensor) -> Tensor:
            if self.loss is None:
                value = loss(embeddings, labels, **self.options)
            else:
                value = self.loss(embeddings, labels)
            if not isinstance(value, Tensor) or value.ndim > 1:
                came = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
                raise ValueError(
                    f"{where}: expected a scalar tensor of {loss.__name__}, got {came}"
                )
            return value

    hints = get_type_hints(loss.__init__ if isinstance(loss, type) else loss)  # type: ignore[misc]
    typed = {
        each.name: hints.get(each.name, type(each.default))
        for each in options
        if each.name not in SET_BY_THE_RUN
    }
    UserLoss.__name__ = UserLoss.__qualname__ = loss.__name__
    UserLoss.__module__, UserLoss.__doc__ = loss.__module__, loss.__doc__
    UserLoss.__init__.__annotations__ = typed
    UserLoss.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in options]
    )
    return UserLoss


def _table(module: ModuleType, name: str, path: Path) -> dict[str, Any]:
    table = getattr(module, name, {})
    if not isinstance(table, dict):
        raise ValueError(f"{path}: {name}: expected a dict, got {type(table).__name__}")
    return table


def _ranges(table: Mapping[str, Any]) -> dict[str, Range]:
    found = {}
    for key, value in table.items():
        if not isinstance(value, (tuple, list)) or len(value) < 2:
            raise ValueError(f"RANGES: {key}: expected (low, high) or [a, b, ...], got {value!r}")
        if isinstance(value, tuple) and len(value) == 2:
            found[key] = Range(low=value[0], high=value[1], log=value[0] > 0)
        else:
            found[key] = Range(choices=tuple(value))
    return found
