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


def _alone(name: str, *, on_centers: bool = False) -> Module:
    return Module(lambda num_classes, dim: REGISTRIES[name](), on_centers=on_centers)


def _centered(name: str) -> Module:
    return Module(REGISTRIES[name], per_class=True)


MODULES: dict[str, Module] = {
    "almn": _centered("almn"),
    "angular": _alone("angular"),
    "bier": _alone("bier"),
    "center": _centered("center"),
    "circle": _alone("circle"),
    "cluster_nca": _alone("cluster_nca"),
    "clustering": _alone("clustering"),
    "contrastive": _alone("contrastive"),
    "fixed_margin": _centered("fixed_margin"),
    "hdc": _alone("hdc"),
    "hierarchical_triplet": _centered("hierarchical_triplet"),
    "histogram": _alone("histogram"),
    "lifted_structure": _alone("lifted_structure"),
    "magnet": _alone("magnet"),
    "margin": Module(
        lambda num_classes, dim: REGISTRIES["margin"](num_classes, boundary_weight=0.1),
        per_class=True,
    ),
    "multi_similarity": _alone("multi_similarity"),
    "n_pair": _alone("n_pair"),
    "nca": _alone("nca"),
    "ncm": _centered("ncm"),
    "normalized_softmax": _centered("normalized_softmax"),
    "nra": _alone("nra"),
    "pddm": Module(lambda num_classes, dim: REGISTRIES["pddm"](dim, width=7)),
    "proxy_anchor": _centered("proxy_anchor"),
    "proxy_nca": _centered("proxy_nca"),
    "softmax": _centered("softmax"),
    "triplet": _alone("triplet"),
    "adversarial": Module(lambda num_classes, dim: REGISTRIES["adversarial"](dim, width=5)),
    "density": Module(
        lambda num_classes, dim: REGISTRIES["density"](
            num_classes, torch.linspace(0.5, 2.0, num_classes)
        ),
        per_class=True,
    ),
    "divergence": _alone("divergence"),
    "entropy": _alone("entropy"),
    "global_statistics": _alone("global_statistics"),
    "hyperspherical_energy": _alone("hyperspherical_energy", on_centers=True),
    "log_exp_spread": _alone("log_exp_spread", on_centers=True),
    "orthogonal": _alone("orthogonal"),
    "power_spread": _alone("power_spread", on_centers=True),
    "uniform_spread": _alone("uniform_spread", on_centers=True),
}

EVERY_MODULE = pytest.mark.parametrize("name", MODULES)


def required(function: Callable[..., Any]) -> dict[str, int]:
    """Numbers of classes and dimensions, for the parameters of a constructor without default."""
    parameters = inspect.signature(function).parameters.values()
    return {
        parameter.name: {"num_classes": NUM_CLASSES, "dim": 4}[parameter.name]
        for parameter in parameters
        if parameter.default is inspect.Parameter.empty
        and parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    }
