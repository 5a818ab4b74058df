"""How to construct every module of both registries: the table that the tests over modules share."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from batches import NUM_CLASSES
from kinspace.losses import LOSSES
from kinspace.regularizers import REGULARIZERS

REGISTRIES: dict[str, type[nn.Module]] = {**LOSSES, **REGULARIZERS}


@dataclass(frozen=True)
class Module:
    """How one module is built for a number of classes and a dimension, and what it is called on.

    per_class: it holds something for each class (centers, proxies, targets), so that labels have
    to stay below the number of classes and may not be renamed.
    on_centers: it is called on class centers, one row a class, and needs no labels.
    """

    build: Callable[[int, int], nn.Module]
    per_class: bool = False
    on_centers: bool = False


def required(function: Callable[..., Any]) -> dict[str, int]:
    """Numbers of classes and dimensions, for the parameters of a constructor without default."""
    parameters = inspect.signature(function).parameters.values()
    return {
        parameter.name: {"num_classes": NUM_CLASSES, "dim": 4}[parameter.name]
        for parameter in parameters
        if parameter.default is inspect.Parameter.empty
        and parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    }


def _by_constructor(kind: type[nn.Module]) -> Module:
    names = required(kind)

    def build(num_classes: int, dim: int) -> nn.Module:
        sizes = {"num_classes": num_classes, "dim": dim}
        return kind(**{name: sizes[name] for name in names})

    on_centers = getattr(kind, "takes", None) == "centers"
    return Module(build, per_class="num_classes" in names, on_centers=on_centers)


# Tried with other than the defaults; the others are built as their constructors ask for.
BUILT: dict[str, Module] = {
    "hist": Module(
        lambda num_classes, dim: REGISTRIES["hist"](num_classes, dim, width=6), per_class=True
    ),
    "margin": Module(
        lambda num_classes, dim: REGISTRIES["margin"](num_classes, boundary_weight=0.1),
        per_class=True,
    ),
    "pddm": Module(lambda num_classes, dim: REGISTRIES["pddm"](dim, width=7)),
    "adversarial": Module(lambda num_classes, dim: REGISTRIES["adversarial"](dim, width=5)),
    "pfml": Module(
        lambda num_classes, dim: REGISTRIES["pfml"](num_classes, dim, centers=3), per_class=True
    ),
    "density": Module(
        lambda num_classes, dim: REGISTRIES["density"](
            num_classes, torch.linspace(0.5, 2.0, num_classes)
        ),
        per_class=True,
    ),
}
MODULES = {name: BUILT.get(name) or _by_constructor(kind) for name, kind in REGISTRIES.items()}

EVERY_MODULE = pytest.mark.parametrize("name", MODULES)
