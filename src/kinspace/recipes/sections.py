"""The sections of a recipe, one frozen dataclass each.

First loss, batches, model and pictures, then optimizer, schedule, validation, test and search. Each
checks its fields, whether read from TOML or made in Python; an error names the key in the section.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from kinspace._core import checks
from kinspace._core.vectors import group_sizes
from kinspace.data.transforms import FITS
from kinspace.losses import LOSSES
from kinspace.models.backbones import BACKBONES, count_learners, find_backbone
from kinspace.models.embedder import checked_scales
from kinspace.models.ensembles import learner_sizes
from kinspace.models.head import FILLERS, POOLINGS
from kinspace.recipes.fields import (
    above_zero,
    at_least,
    below_one,
    convert_fields,
    convert_options,
    require_choice,
)
from kinspace.regularizers import REGULARIZERS
from kinspace.samplers import SAMPLERS

__all__ = [
    "AUTO",
    "IndexConfig",
    "LossConfig",
    "ModelConfig",
    "OptimizerConfig",
    "Range",
    "RegularizerConfig",
    "SamplerConfig",
    "SamplesConfig",
    "ScheduleConfig",
    "SearchConfig",
    "TestConfig",
    "TransformConfig",
    "ValidationConfig",
    "WarmStartConfig",
]

AUTO = "auto"  # the backbone that is chosen by the pictures
STARTS = ("random", *FILLERS, "whitened", "discriminants")


@dataclass(frozen=True)
class LossConfig:
    """A loss of `LOSSES` and its options.

    virtual_points: how far ALMN's virtual points lie that join each batch, its beta; 0: none.

    >>> LossConfig("nra", {"alpha": 2})
    LossConfig(name='nra', options={'alpha': 2.0}, virtual_points=0.0)
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    virtual_points: float = 0.0

    def __post_init__(self) -> None:
        convert_fields(self)
        require_choice("name", self.name, LOSSES, what="loss")
        at_least(self, 0, "virtual_points")
        options = convert_options(LOSSES[self.name], self.name, self.options)
        object.__setattr__(self, "options", options)


@dataclass(frozen=True)
class RegularizerConfig:
    """A regularizer of `REGULARIZERS`, its weight and options.

    centers: of a spread, the "proxies" of the loss or the class means of the "batch".
    share: in place of the weight, what its gradient is to the loss's (`kinspace.objective`).
    """

    name: str
    weight: float = 1.0
    centers: str = "proxies"
    share: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        convert_fields(self)
        require_choice("name", self.name, REGULARIZERS, what="regularizer")
        require_choice("centers", self.centers, ("proxies", "batch"), what="centers")
        above_zero(self, "share")
        options = convert_options(REGULARIZERS[self.name], self.name, self.options)
        object.__setattr__(self, "options", options)


@dataclass(frozen=True)
class SamplesConfig:
    """What the loss makes of samples: their weights, a class to ignore, samples without a positive.

    weights: of classes by name, 1 for others; "balanced": as much for each class, whatever its
        number of samples (n / (C n_c), as in scikit-learn).
    attribute: of the data, 0 to 1, by which each sample is weighted besides.
    ignore: a class whose samples take no part in the loss and its regularizers.
    singletons: "count" a sample without a positive in the mean, or "skip" it.

    >>> SamplesConfig({"house sparrow": 2})
    SamplesConfig(weights={'house sparrow': 2.0}, attribute=None, ignore=None, singletons='count')
    """

    weights: Literal["balanced"] | Mapping[str, Any] | None = None
    attribute: str | None = None
    ignore: str | None = None
    singletons: Literal["count", "skip"] = "count"

    def __post_init__(self) -> None:
        convert_fields(self)
        if isinstance(self.weights, Mapping):
            found = {
                name: float(checks.number(f"weights.{name}", value, at_least=0))
                for name, value in self.weights.items()
            }
            object.__setattr__(self, "weights", found)

    @property
    def options(self) -> list[str]:
        """The options of the loss that these settings ask for."""
        asked = {
            "weights": self.weights is not None or self.attribute is not None,
            "ignore_label": self.ignore is not None,
            "singletons": self.singletons != "count",
        }
        return [name for name, is_asked in asked.items() if is_asked]


@dataclass(frozen=True)
class SamplerConfig:
    """A sampler of `SAMPLERS` and its options."""

    name: str = "classes_by_samples"
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        convert_fields(self)
        require_choice("name", self.name, SAMPLERS, what="sampler")
        options = convert_options(SAMPLERS[self.name], self.name, self.options)
        for name, value in options.items():
            if isinstance(value, int) and not isinstance(value, bool):
                checks.integer(name, value, at_least=1)
        object.__setattr__(self, "options", options)


@dataclass(frozen=True)
class ModelConfig:
    """Backbone and head.

    backbone: "auto": `DEFAULT_BACKBONE` with its pretrained weights for pictures of 64 pixels and
        more, "small" for others, and for weights or learners.
    weights: a safetensors file; with it `pretrained` becomes false.
    dim: of the embeddings; None: no embedding layer.
    pool: "avg", "max", "both" or "token"; None: "token" for transformers whose own classifier
        reads a class token, else "avg"; "auto": "token" for these, else "both".
    normalize: in training to `length` (at test always, to 1).
    groups: of dimensions, each normalized by itself; their number or their sizes, None: one.
    attention: the number of learners that see the net through masks of their own, 0: none.
    depths: the learners are at several depths of the net (`kinspace.models.ensembles`). Each has
        one of the groups; without groups one layer has the features of all depths.
    start: of the embedding layer, "random"; as Caffe's fillers have it, "gaussian" (standard
        deviation 0.01) or "xavier"; or by the backbone's features of the training part: "whitened",
        or their "discriminants" (`kinspace.models.projections`).
    start_norm: the mean norm of the embeddings at the start where they are not normalized; None
        leaves the initialization as it is.
    freeze_batch_norm: its statistics, scale and shift stay as they are; None: so in a backbone that
        starts from weights.
    lora: the rank of LoRA in a transformer of timm, 0: none. With it only these matrices and the
        head train (`kinspace.models.lora`).
    freeze: the backbone does not train: its features are computed once, and the head trains on
        them (`kinspace.training.frozen`). freeze_views: of each training picture, the center crop
        and this number less one of random crops.
    options: of the backbone.
    """

    backbone: str = "small"
    weights: str | None = None
    pretrained: bool = False
    dim: int | None = 128
    pool: str | None = None
    dropout: float = 0.0
    normalize: bool = True
    length: float = 1.0
    groups: int | tuple[int, ...] | None = None
    attention: int = 0
    depths: bool = False
    start: str = "random"
    start_norm: float | None = 1.0
    freeze_batch_norm: bool | None = None
    lora: int = 0
    freeze: bool = False
    freeze_views: int = 1
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        convert_fields(self)
        self._check_backbone()
        if self.weights is not None:
            object.__setattr__(self, "pretrained", False)
        at_least(self, 1, "dim", "freeze_views")
        if self.groups is not None and self.dim is not None:
            group_sizes(self.groups, self.dim)
        learners = count_learners(self.backbone, self.attention, depths=self.depths)
        if learners and (self.attention or self.groups is not None):
            learner_sizes(learners, self.groups, self.dim, shared=bool(self.attention))
        if self.pool is not None:
            require_choice("pool", self.pool, (*POOLINGS, "auto"), what="pooling")
        below_one("dropout", self.dropout)
        require_choice("start", self.start, STARTS, what="start")
        if (
            self.start != "random"
            and self.start not in FILLERS
            and (self.dim is None or self.attention or self.groups)
        ):
            raise ValueError(
                f"start: {self.start!r} expects one embedding layer, without attention or groups"
            )
        above_zero(self, "length", "start_norm")
        at_least(self, 0, "lora")
        if self.lora and (self.backbone == AUTO or find_backbone(self.backbone)[0] != "timm"):
            raise ValueError(
                f"lora: it is for transformers of timm, got {self.backbone!r}; set lora to 0"
            )

    @property
    def batch_norm_frozen(self) -> bool:
        """Whether batch norm is frozen: as `freeze_batch_norm` has it, None resolved."""
        if self.freeze_batch_norm is None:
            return self.pretrained or self.weights is not None
        return self.freeze_batch_norm

    def _check_backbone(self) -> None:
        if self.backbone == AUTO:
            if self.weights is not None or self.attention or self.depths or self.options:
                object.__setattr__(self, "backbone", "small")
            else:
                return
        try:
            find_backbone(self.backbone)
        except ValueError as error:
            raise ValueError(f"backbone: {error}") from None
        ours = BACKBONES.get(self.backbone)
        if isinstance(ours, type):  # the options of other libraries' models only they can check
            try:
                options = convert_options(ours, self.backbone, self.options)
            except ValueError as error:
                raise ValueError(f"options.{error}") from None
            object.__setattr__(self, "options", options)


@dataclass(frozen=True)
class TransformConfig:
    """As `kinspace.data.transforms.TransformSettings`; None: the value of the backbone."""

    size: int | None = None
    resize: int | None = None
    fit: str = "squash"
    mirror: bool = True
    rescale: float = 0.0
    test_size: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        convert_fields(self)
        at_least(self, 1, "size", "resize", "test_size")
        for name in ("size", "test_size"):
            side = getattr(self, name)
            if side is not None and self.resize is not None and side > self.resize:
                raise ValueError(f"{name}: expected at most resize, {self.resize}, got {side}")
        require_choice("fit", self.fit, FITS, what="fit")
        at_least(self, 0, "rescale")
        for value in self.std or ():
            checks.positive("std", value)


@dataclass(frozen=True)
class IndexConfig:
    """The cluster index: K-means within each class.

    clusters: per class, a number or "auto" for 1 .. max_clusters, chosen for each class.
    refresh: steps between two runs of K-means; 0: one run per epoch.
    disagreement: K-means runs as well when so large a share of the samples of the last batches is
        nearer to another cluster of their class than to their own; None: not by that.
    """

    clusters: int | Literal["auto"] = 8
    max_clusters: int = 8
    refresh: int = 0
    disagreement: float | None = None

    def __post_init__(self) -> None:
        convert_fields(self)
        if self.clusters != "auto":
            at_least(self, 1, "clusters")
        at_least(self, 1, "max_clusters")
        at_least(self, 0, "refresh")
        above_zero(self, "disagreement")


@dataclass(frozen=True)
class WarmStartConfig:
    """Training with another loss, usually a softmax, before the run; 0 steps: none."""

    loss: str = "softmax"
    steps: int = 0
    lr: float = 1e-3

    def __post_init__(self) -> None:
        convert_fields(self)
        require_choice("loss", self.loss, LOSSES, what="loss")
        at_least(self, 0, "steps")
        above_zero(self, "lr")


@dataclass(frozen=True)
class OptimizerConfig:
    """Optimizer and learning rates.

    head: factor of lr for the embedding layer.
    loss: factor of lr for the parameters of the loss (proxies, boundaries).
    targets: factor of lr for the parameters of regularizers (density targets, regressors).
    layer_decay: each layer of the backbone has the rate of the next one times this, the last one
        lr: 0.65 to 0.75 is usual where transformers learn to classify. None: one rate for all.
    momentum: of SGD, and the first beta of Adam.
    ema: decay of the moving average of the weights; None: no average.
    """

    name: str = "adamw"
    lr: float = 1e-4
    head: float = 10.0
    loss: float = 100.0
    targets: float = 10.0
    layer_decay: float | None = None
    momentum: float = 0.9
    weight_decay: float = 1e-4
    clip_value: float | None = None
    clip_norm: float | None = None
    ema: float | None = None

    def __post_init__(self) -> None:
        convert_fields(self)
        require_choice("name", self.name, ("sgd", "adam", "adamw"), what="optimizer")
        above_zero(self, "lr", "clip_value", "clip_norm", "layer_decay")
        if self.layer_decay is not None and self.layer_decay > 1:
            raise ValueError(
                f"layer_decay: expected a number above 0, at most 1, got {self.layer_decay!r}"
            )
        at_least(self, 0, "head", "loss", "targets", "weight_decay")
        below_one("momentum", self.momentum)
        if self.ema is not None:
            below_one("ema", self.ema)


@dataclass(frozen=True)
class ScheduleConfig:
    """Number of steps and schedule of the learning rate.

    kind: "constant"; "step": times `factor` at each milestone; "cosine": to 0 at the end;
        "annealed": lr * factor ** (step / every), as Magnet's factor per epoch.
    warm_up: first steps, with linear growth from 0.
    freeze_backbone: first steps, in which only head and loss train.
    """

    steps: int = 2000
    kind: str = "cosine"
    warm_up: int = 0
    freeze_backbone: int = 0
    milestones: tuple[int, ...] = ()
    factor: float = 0.1
    every: int = 1000

    def __post_init__(self) -> None:
        convert_fields(self)
        kinds = ("constant", "step", "cosine", "annealed")
        require_choice("kind", self.kind, kinds, what="schedule")
        at_least(self, 1, "steps", "every")
        at_least(self, 0, "warm_up", "freeze_backbone")
        above_zero(self, "factor")
        for step in self.milestones:
            checks.integer("milestones", step, at_least=1)
        if list(self.milestones) != sorted(set(self.milestones)):
            raise ValueError(f"milestones: expected growing steps, got {list(self.milestones)}")


@dataclass(frozen=True)
class ValidationConfig:
    """Validation on training classes held out for the choice of a checkpoint.

    fraction: of the training classes; 0: none. every: steps between two validations.
    """

    fraction: float = 0.2
    every: int = 200

    def __post_init__(self) -> None:
        convert_fields(self)
        below_one("fraction", self.fraction)
        at_least(self, 1, "every")


@dataclass(frozen=True)
class SearchConfig:
    """The search for settings on held-out training classes (`kinspace.training.selection`).

    budget: the steps of all its trainings together, in trainings of `schedule.steps`; 0: no search.
    cpu_minutes: on a CPU a pretrained network is trained only if the search would take no longer;
        otherwise head and loss alone are, on its features. None: no limit.
    frozen: a loss whose default recipe is tried on the features of the frozen backbone too, or
        None. Options of the loss, or regularizers, that are not the recipe's own end that.
    """

    budget: float = 0.0
    cpu_minutes: float | None = None
    frozen: str | None = None

    def __post_init__(self) -> None:
        convert_fields(self)
        at_least(self, 0, "budget", "cpu_minutes")
        if self.frozen is not None:
            require_choice("frozen", self.frozen, LOSSES, what="loss")


@dataclass(frozen=True)
class TestConfig:
    """The views of a picture whose embeddings are averaged after training.

    views: random augmentations; 1: the center crop alone.
    mirror: whether the model averages over the mirror image too.
    scales: factors of enlargement that the model averages over.
    """

    __test__ = False  # for pytest

    views: int = 1
    mirror: bool = False
    scales: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        convert_fields(self)
        at_least(self, 1, "views")
        checked_scales(self.scales)


@dataclass(frozen=True)
class Range:
    """The values that a search may try: from low to high, or one of the choices.

    With whole numbers as ends only whole numbers between them. log: uniform in the logarithm.

    >>> Range(low=1e-5, high=1e-2, log=True), Range(choices=[1, 2, 4]).choices
    (Range(low=1e-05, high=0.01, log=True, choices=None), (1, 2, 4))
    """

    low: int | float | None = None
    high: int | float | None = None
    log: bool = False
    choices: tuple[Any, ...] | None = None

    def __post_init__(self) -> None:
        convert_fields(self)
        if (self.choices is None) == (self.low is None) or (self.low is None) != (
            self.high is None
        ):
            raise ValueError(
                f"low: expected low and high, or choices, got {self.low}, {self.high} and "
                f"{self.choices}"
            )
        if self.choices is not None and (not self.choices or self.log):
            raise ValueError("choices: expected one or more, and no log")
        if self.low is not None and self.high is not None:
            if self.low >= self.high:
                raise ValueError(f"low: expected less than high, {self.high}, got {self.low}")
            if self.log:
                checks.positive("low", self.low)
