"""The parts of a recipe that say what is trained: loss, batches, model, pictures.

Each checks itself, whether read from TOML or made in Python. Errors name the key within the part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from kinspace._core import checks
from kinspace._core.subembeddings import group_sizes
from kinspace.data.transforms import FITS
from kinspace.losses import LOSSES
from kinspace.models.backbones import count_learners
from kinspace.models.ensembles import learner_sizes
from kinspace.models.head import POOLINGS
from kinspace.recipes.backbones import fitted_backbone_options, known_backbone
from kinspace.recipes.field_types import known
from kinspace.recipes.fields import above_zero, at_least, below_one, typed_fields
from kinspace.recipes.options import fitted_options
from kinspace.regularizers import REGULARIZERS
from kinspace.samplers import SAMPLERS

__all__ = [
    "IndexPart",
    "LossPart",
    "ModelPart",
    "RegularizerPart",
    "SamplerPart",
    "TransformPart",
    "WarmStartPart",
]


STARTS = ("random", "discriminants")


@dataclass(frozen=True)
class LossPart:
    """A loss of `LOSSES` and its options.

    >>> LossPart("nra", {"alpha": 2})
    LossPart(name='nra', options={'alpha': 2.0})
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        typed_fields(self)
        known("name", self.name, LOSSES, what="loss")
        options = fitted_options(LOSSES[self.name], self.name, self.options)
        object.__setattr__(self, "options", options)


@dataclass(frozen=True)
class RegularizerPart:
    """A regularizer of `REGULARIZERS`, its weight and options.

    centers: what the spreads look at, the loss's "proxies" or the class means of the "batch".
    """

    name: str
    weight: float = 1.0
    centers: str = "proxies"
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        typed_fields(self)
        known("name", self.name, REGULARIZERS, what="regularizer")
        known("centers", self.centers, ("proxies", "batch"), what="centers")
        options = fitted_options(REGULARIZERS[self.name], self.name, self.options)
        object.__setattr__(self, "options", options)


@dataclass(frozen=True)
class SamplerPart:
    """A sampler of `SAMPLERS` and its options."""

    name: str = "classes_by_samples"
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        typed_fields(self)
        known("name", self.name, SAMPLERS, what="sampler")
        options = fitted_options(SAMPLERS[self.name], self.name, self.options)
        for name, value in options.items():
            if isinstance(value, int) and not isinstance(value, bool):
                checks.integer(name, value, at_least=1)
        object.__setattr__(self, "options", options)


@dataclass(frozen=True)
class ModelPart:
    """Backbone and head.

    weights: a safetensors file; it goes before `pretrained`, which then is false. dim: of the
    embeddings, None: no embedding layer. pool: "avg", "max", "both" or "token". normalize: in
    training to `length` (at test always, to 1). groups: of dimensions, each normalized by itself;
    how many or their sizes, None: the whole vector. attention: so many
    learners see the net through masks of their own, 0: none; depths: the learners sit at several
    depths of the net (`kinspace.models.ensembles`). Each takes one of the groups; depths without
    groups: one layer takes the features of all depths. start: of the embedding layer, "random", or
    from the "discriminants" of the backbone's features and the training classes
    (`kinspace.models.lda`; for tests on seen classes). start_norm: the mean norm of
    the embeddings the head starts at where they are not normalized; None leaves the
    initialization. options: of the backbone.
    """

    backbone: str = "small"
    weights: str | None = None
    pretrained: bool = False
    dim: int | None = 128
    pool: str = "avg"
    dropout: float = 0.0
    normalize: bool = True
    length: float = 1.0
    groups: int | tuple[int, ...] | None = None
    attention: int = 0
    depths: bool = False
    start: str = "random"
    start_norm: float | None = 1.0
    freeze_batch_norm: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        typed_fields(self)
        known_backbone("backbone", self.backbone)
        try:
            options = fitted_backbone_options(self.backbone, self.options)
        except ValueError as error:
            raise ValueError(f"options.{error}") from None
        object.__setattr__(self, "options", options)
        if self.weights is not None:
            object.__setattr__(self, "pretrained", False)
        at_least(self, 1, "dim")
        if self.groups is not None and self.dim is not None:
            group_sizes(self.groups, self.dim)
        learners = count_learners(self.backbone, self.attention, depths=self.depths)
        if learners and (self.attention or self.groups is not None):
            learner_sizes(learners, self.groups, self.dim, shared=bool(self.attention))
        known("pool", self.pool, POOLINGS, what="pooling")
        below_one("dropout", self.dropout)
        known("start", self.start, STARTS, what="start")
        if self.start != "random" and (self.dim is None or self.attention or self.groups):
            raise ValueError(
                f"start: {self.start!r} expects one embedding layer, without attention or groups"
            )
        above_zero(self, "length", "start_norm")


@dataclass(frozen=True)
class TransformPart:
    """As in `kinspace.data.transforms.TransformSettings`; None: what the backbone was made for."""

    size: int | None = None
    resize: int | None = None
    fit: str = "squash"
    mirror: bool = True
    rescale: float = 0.0
    test_size: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        typed_fields(self)
        at_least(self, 1, "size", "resize", "test_size")
        for name in ("size", "test_size"):
            side = getattr(self, name)
            if side is not None and self.resize is not None and side > self.resize:
                raise ValueError(f"{name}: expected at most resize, {self.resize}, got {side}")
        known("fit", self.fit, FITS, what="fit")
        at_least(self, 0, "rescale")
        for value in self.std or ():
            checks.positive("std", value)


@dataclass(frozen=True)
class IndexPart:
    """The index: K-means clusters a class, a number or "auto" for 1 .. max_clusters by class.

    refresh: steps from one to the next; 0: once an epoch.
    """

    clusters: int | Literal["auto"] = 8
    max_clusters: int = 8
    refresh: int = 0

    def __post_init__(self) -> None:
        typed_fields(self)
        if self.clusters != "auto":
            at_least(self, 1, "clusters")
        at_least(self, 1, "max_clusters")
        at_least(self, 0, "refresh")


@dataclass(frozen=True)
class WarmStartPart:
    """Steps with another loss, mostly a softmax, before the run; 0: none."""

    loss: str = "softmax"
    steps: int = 0
    lr: float = 1e-3

    def __post_init__(self) -> None:
        typed_fields(self)
        known("loss", self.loss, LOSSES, what="loss")
        at_least(self, 0, "steps")
        above_zero(self, "lr")
