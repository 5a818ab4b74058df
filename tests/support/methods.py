"""How to call every public method on a batch: the table that the tests over all methods share.

A method has a row where its signature does not say how it is called, or where its options are to
be tried with chosen values. The others are added by their signatures.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import pytest
import torch
from torch import Tensor

import kinspace.losses
import kinspace.regularizers
import loops
from batches import NUM_CLASSES, Batch, all_triplets, random_centers, two_clusters_a_class
from kinspace.losses import LOSSES
from kinspace.regularizers import REGULARIZERS
from loops import learner_sizes

Arguments = dict[str, Tensor]


@dataclass(frozen=True)
class Method:
    """One function, what it is given for a batch, and the options to try it with.

    The first options are the defaults, which are what law tests use.
    """

    name: str
    package: str  # "losses" or "regularizers"
    arguments: Callable[[Batch, int], Arguments]
    options: list[dict[str, Any]] = field(default_factory=lambda: [{}])

    @property
    def function(self) -> Callable[..., Tensor]:
        packages = {"losses": kinspace.losses, "regularizers": kinspace.regularizers}
        return getattr(packages[self.package], self.name)  # type: ignore[no-any-return]

    @property
    def loop(self) -> Callable[..., Tensor]:
        assert hasattr(loops, self.name), f"tests/support/loops.py: expected a loop {self.name}"
        return getattr(loops, self.name)  # type: ignore[no-any-return]


def _labels(batch: Batch, seed: int) -> Arguments:
    return {"embeddings": batch.embeddings, "labels": batch.labels}


def _with(name: str) -> Callable[[Batch, int], Arguments]:
    def arguments(batch: Batch, seed: int) -> Arguments:
        dim = batch.embeddings.shape[1]
        scale = float(batch.embeddings.abs().max()) or 1.0
        return {**_labels(batch, seed), name: random_centers(seed + 1000, dim=dim, scale=scale)}

    return arguments


def _softmax(batch: Batch, seed: int) -> Arguments:
    given = _with("weight")(batch, seed)
    return {**given, "bias": random_centers(seed + 2000, dim=1)[:, 0]}


def _several_centers(batch: Batch, seed: int) -> Arguments:
    """Three centers a class."""
    given = _with("centers")(batch, seed)
    dim = batch.embeddings.shape[1]
    rows = random_centers(seed + 2000, num_classes=3 * NUM_CLASSES, dim=dim)
    return {**given, "centers": rows.view(NUM_CLASSES, 3, dim)}


def _adacos(batch: Batch, seed: int) -> Arguments:
    scale = torch.tensor(2.75, dtype=torch.float64)
    return {**_with("weight")(batch, seed), "scale": scale}


def _hist(batch: Batch, seed: int) -> Arguments:
    """A network of 6 units; variances on both sides of where relu6 cuts them off."""
    given = _with("means")(batch, seed)
    dim = batch.embeddings.shape[1]
    generator = torch.Generator().manual_seed(seed + 2000)
    shapes = {
        "log_variances": (NUM_CLASSES, dim),
        "hidden": (6, dim + 1),
        "norm": (2, 6),
        "output": (NUM_CLASSES, 7),
    }
    return given | {
        name: torch.randn(shape, generator=generator, dtype=torch.float64)
        for name, shape in shapes.items()
    }


def _magnet(batch: Batch, seed: int) -> Arguments:
    clusters, cluster_labels = two_clusters_a_class(batch.labels)
    return {
        "embeddings": batch.embeddings,
        "clusters": clusters,
        "cluster_labels": cluster_labels,
    }


def _tree(batch: Batch, seed: int) -> Arguments:
    """Classes at distances around the middle of the thresholds."""
    means = random_centers(seed + 1000, dim=batch.embeddings.shape[1], scale=0.4)
    generator = torch.Generator().manual_seed(seed + 2000)
    spreads = 0.4 * torch.rand(NUM_CLASSES, generator=generator, dtype=torch.float64)
    return {**_labels(batch, seed), "means": means, "spreads": spreads}


def _pddm(batch: Batch, seed: int) -> Arguments:
    """Layers of 7 units, most of them alive."""
    generator = torch.Generator().manual_seed(seed + 1000)
    shapes = {"pairwise": (2, 7, batch.embeddings.shape[1] + 1), "joint": (7, 16)}
    layers = {
        name: torch.randn(shape, generator=generator, dtype=torch.float64)
        for name, shape in shapes.items()
    }
    return {**_labels(batch, seed), **layers}


def _adversarial(batch: Batch, seed: int) -> Arguments:
    """Regressors of 5 units between the three learners, some of their rows far from length 1."""
    generator = torch.Generator().manual_seed(seed + 1000)
    pairs = list(combinations(sorted(learner_sizes(3, batch.embeddings.shape[1])), 2))
    shapes = {
        "hidden": (sum(larger + 1 for _, larger in pairs), 5),
        "output": (6, sum(smaller for smaller, _ in pairs)),
    }
    layers = {
        name: 0.5 * torch.randn(shape, generator=generator, dtype=torch.float64)
        for name, shape in shapes.items()
    }
    return {"embeddings": batch.embeddings, **layers}


def _triplets(batch: Batch, seed: int) -> Arguments:
    return {"embeddings": batch.embeddings, "triplets": all_triplets(batch.labels)}


def _density(batch: Batch, seed: int) -> Arguments:
    generator = torch.Generator().manual_seed(seed + 3000)
    targets, original = torch.rand(2, NUM_CLASSES, generator=generator, dtype=torch.float64)
    return {**_labels(batch, seed), "targets": targets, "original": original + 0.1}


def _density_alone(batch: Batch, seed: int) -> Arguments:
    given = _density(batch, seed)
    return {name: given[name] for name in ("embeddings", "labels", "targets")}


def _centers(batch: Batch, seed: int) -> Arguments:
    return {"centers": batch.embeddings}


def _embeddings(batch: Batch, seed: int) -> Arguments:
    return {"embeddings": batch.embeddings}


TEMPERATURES: list[dict[str, Any]] = [
    {},
    {"temperature": 0.5},
    {"distance": "euclidean", "temperature": 0.5},
    {"distance": "dot", "temperature": 2.0},
]
METHODS = [
    Method("n_pair_loss", "losses", _labels, [{}, {"norm_weight": 0.1}, {"anchors": "first"}]),
    Method(
        "almn_loss",
        "losses",
        _with("centers"),
        [{}, {"beta": 0.0}, {"beta": 1.0, "norm_weight": 0.0}, {"margin": "printed"}],
    ),
    Method(
        "fixed_margin_loss",
        "losses",
        _with("centers"),
        [{}, {"multiplier": 1}, {"multiplier": 4, "norm_weight": 0.1}],
    ),
    Method(
        "nra_loss",
        "losses",
        _labels,
        [
            {},
            {"alpha": 1.0},
            {"alpha": 2.5},
            {"detach_range": True, "eps": 1e-2},
            {"sharpness": 6.0},
        ],
    ),
    Method(
        "magnet_loss",
        "losses",
        _magnet,
        [{}, {"alpha": 7.18}, {"alpha": -0.5, "eps": 1e-3}, {"sharpness": 4.0}],
    ),
    Method(
        "contrastive_loss",
        "losses",
        _labels,
        [
            {},
            {"reduction": "sum", "margin": 3.0},
            {"reduction": "mean"},
            {"reduction": "mean_active", "squared": False},
            {"distance": "cosine"},
            {"distance": "manhattan", "margin": 4.0},
            {"distance": "hyperbolic", "margin": 4.0},
        ],
    ),
    Method(
        "triplet_loss",
        "losses",
        _labels,
        [
            {},
            {"reduction": "sum", "squared": False, "margin": 0.2},
            {"reduction": "mean_active"},
            {"mining": "semi_hard"},
            {"mining": "semi_hard", "squared": False, "margin": 0.3},
            {"mining": "batch_hard", "margin": 0.2},
            {"mining": "batch_hard", "squared": False},
            {"mining": "disjoint", "margin": 0.3},
            {"distance": "dot"},
            {"distance": "hyperbolic", "mining": "semi_hard"},
        ],
    ),
    Method(
        "hierarchical_triplet_loss",
        "losses",
        _tree,
        [{}, {"margin": 0.5, "levels": 3}, {"margin": -0.2, "levels": 40}],
    ),
    Method(
        "pddm_loss",
        "losses",
        _pddm,
        [{}, {"margin": 2.0, "distance_weight": 3.0}, {"distance_margin": 0.1}],
    ),
    Method(
        "bier_loss",
        "losses",
        _labels,
        [{}, {"groups": 2, "margin": 0.3}, {"groups": 1, "scale": 4.0, "cost": 3.0}],
    ),
    Method(
        "proxy_nca_loss",
        "losses",
        _with("proxies"),
        [{}, {"scale": 9.0, "positive_in_denominator": True}],
    ),
    Method("proxy_anchor_loss", "losses", _with("proxies"), [{}, {"alpha": 4.0, "margin": 0.3}]),
    Method(
        "multi_similarity_loss",
        "losses",
        _labels,
        [
            {},
            {"beta": 10.0, "mining_margin": None},
            {"mining_margin": 0.5, "alpha": 5.0, "base": 0.2},
            {"distance": "euclidean", "base": -1.0, "beta": 5.0},
        ],
    ),
    Method("circle_loss", "losses", _labels, [{}, {"scale": 16.0, "margin": 0.4}]),
    Method(
        "margin_loss",
        "losses",
        _triplets,
        [{}, {"margin": 0.5, "boundary": 0.8}, {"distance": "cosine"}],
    ),
    Method("supcon_loss", "losses", _labels, TEMPERATURES),
    Method("nt_xent_loss", "losses", _labels, TEMPERATURES),
    Method("nca_loss", "losses", _labels, [{}, {"distance": "cosine"}, {"distance": "euclidean"}]),
    Method(
        "hdc_loss",
        "losses",
        _labels,
        [
            {},
            {"groups": 2, "shares": (1.0, 0.3), "margin": 1.7},
            {"groups": 1, "shares": (1.0,)},
        ],
    ),
    Method("histogram_loss", "losses", _labels, [{}, {"bins": 11}]),
    Method("cluster_nca_loss", "losses", _magnet, [{}, {"eps": 1e-3}]),
    Method("softmax_loss", "losses", _softmax),
    Method("normalized_softmax_loss", "losses", _with("weight"), [{}, {"scale": 3.0}]),
    Method("adacos_loss", "losses", _adacos),
    Method(
        "sub_center_arcface_loss", "losses", _several_centers, [{}, {"scale": 4.0, "margin": 0.2}]
    ),
    Method(
        "soft_triple_loss",
        "losses",
        _several_centers,
        [{}, {"scale": 4.0, "margin": 0.2, "gamma": 0.5}],
    ),
    Method("pfml_loss", "losses", _several_centers, [{}, {"alpha": 2.0, "delta": 0.9, "eps": 0.3}]),
    Method("hist_loss", "losses", _hist, [{}, {"scale": 4.0, "alpha": 0.3, "weight": 0.5}]),
    Method(
        "recall_surrogate_loss",
        "losses",
        _labels,
        [{}, {"ks": (1, 3), "temperature": 0.1, "rank_temperature": 0.5}],
    ),
    Method("clustering_loss", "losses", _labels, [{}, {"margin_weight": 5.0}]),
    Method(
        "density", "regularizers", _density, [{}, {"eta": 1.0}, {"eta": 0.0}, {"reduction": "sum"}]
    ),
    Method("density", "regularizers", _density_alone),
    Method(
        "log_exp_spread",
        "regularizers",
        _centers,
        [{}, {"sharpness": 1.0}, {"sharpness": 30.0, "margin": 0.2}],
    ),
    Method("power_spread", "regularizers", _centers, [{}, {"power": 2.0}, {"power": 1.5}]),
    Method("hyperspherical_energy", "regularizers", _centers, [{}, {"power": 0.0}, {"power": 2.0}]),
    Method(
        "global_statistics",
        "regularizers",
        _labels,
        [{}, {"margin": 0.1}, {"margin": 0.9, "mean_weight": 3.0}],
    ),
    Method(  # other groups, which are other shapes: test_adversarial.py
        "adversarial_penalty",
        "regularizers",
        _adversarial,
        [{}, {"groups": 3, "weight_penalty": 0.1}],
    ),
    Method("divergence", "regularizers", _embeddings, [{}, {"groups": 2, "margin": 2.3}]),
]


# What a method is given whose signature says it all.
GIVEN: dict[tuple[str, ...], Callable[[Batch, int], Arguments]] = {
    ("embeddings", "labels"): _labels,
    ("embeddings",): _embeddings,
    ("centers",): _centers,
}
GIVEN |= {
    ("embeddings", "labels", table): _with(table)
    for table in ("centers", "means", "proxies", "weight")
}


def _by_signature(name: str, package: str) -> list[Method]:
    """The row of a method; none where there is no such method, or its signature does not tell."""
    public = getattr(kinspace, package)
    if name not in public.__all__ or any(method.name == name for method in METHODS):
        return []
    parameters = inspect.signature(getattr(public, name)).parameters.values()
    given = tuple(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD)
    shared = [p.name for p in parameters if is_reduction(p) or is_compared(p)]
    options = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.name not in shared]
    tried = {p.name: _other(p.default) for p in options if _other(p.default) is not None}
    if given not in GIVEN:
        return []
    return [Method(name, package, GIVEN[given], [{}, tried] if tried else [{}])]


def _other(default: Any) -> Any:
    """Another value of an option that is a number or a switch; None where there is no telling."""
    if isinstance(default, bool):
        return not default
    if isinstance(default, int):
        return default + 1
    return default / 2 or 0.5 if isinstance(default, float) else None


def is_reduction(parameter: inspect.Parameter) -> bool:
    """Whether it is the reduction over samples that all losses share."""
    return parameter.name == "reduction" and parameter.default == "mean"


# What losses of pairs and triplets are compared on: test_references.py tries it. Weights and other
# options of samples, which all losses take: test_samples.py.
COMPARED = {"reference", "reference_labels", "includes_batch", "pairs", "triplets", "weights"}


def is_compared(parameter: inspect.Parameter) -> bool:
    """Whether it is of the reference, the chosen pairs or the samples, which many losses share."""
    if parameter.kind is parameter.VAR_KEYWORD:
        return parameter.name in ("samples", "labeled")
    return parameter.kind is parameter.KEYWORD_ONLY and parameter.name in COMPARED


METHODS += [method for name in LOSSES for method in _by_signature(f"{name}_loss", "losses")]
METHODS += [method for name in REGULARIZERS for method in _by_signature(name, "regularizers")]


def every(table: list[Method]) -> Any:
    """A test for each method of a table."""
    return pytest.mark.parametrize(
        "method", table, ids=[f"{number}-{method.name}" for number, method in enumerate(table)]
    )


EVERY_METHOD = every(METHODS)

# Own reductions, over pairs, triplets or classes.
OTHER_REDUCTIONS = {"contrastive_loss", "triplet_loss", "density"}


def reduces_samples(function: Callable[..., Tensor]) -> bool:
    """Whether the value is a mean over samples, so that it can be their sum or they themselves."""
    return function.__name__ not in OTHER_REDUCTIONS and "reduction" in str(
        inspect.signature(function)
    )
