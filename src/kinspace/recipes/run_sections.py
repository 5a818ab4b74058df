"""The parts of a recipe that say how: optimizer, schedule, validation, search.

Each checks itself, whether read from TOML or made in Python. Errors name the key within the part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kinspace._core import checks
from kinspace.models.embedder import checked_scales
from kinspace.recipes.field_types import known
from kinspace.recipes.fields import above_zero, at_least, below_one, typed_fields

__all__ = ["OptimizerPart", "Range", "SchedulePart", "TestPart", "ValidationPart"]


@dataclass(frozen=True)
class OptimizerPart:
    """Optimizer and learning rates.

    head, loss, targets multiply lr: for the embedding layer; for the parameters of the loss
    (proxies, boundaries); for those of regularizers (density targets, regressors). ema: the decay
    of the average of the weights, None: no average. momentum is SGD's, and Adam's first beta.
    """

    name: str = "adamw"
    lr: float = 1e-4
    head: float = 10.0
    loss: float = 100.0
    targets: float = 10.0
    momentum: float = 0.9
    weight_decay: float = 1e-4
    clip_value: float | None = None
    clip_norm: float | None = None
    ema: float | None = None

    def __post_init__(self) -> None:
        typed_fields(self)
        known("name", self.name, ("sgd", "adam", "adamw"), what="optimizer")
        above_zero(self, "lr", "clip_value", "clip_norm")
        at_least(self, 0, "head", "loss", "targets", "weight_decay")
        below_one("momentum", self.momentum)
        if self.ema is not None:
            below_one("ema", self.ema)


@dataclass(frozen=True)
class SchedulePart:
    """How long, and the learning rate on the way.

    warm_up: steps of linear growth from 0. freeze_backbone: first steps in which only head and
    loss train. kind: "constant"; "step": times `factor` at each milestone; "cosine": to 0 at the
    end; "annealed": lr * factor ** (step / every), as Magnet's factor an epoch.
    """

    steps: int = 2000
    kind: str = "cosine"
    warm_up: int = 0
    freeze_backbone: int = 0
    milestones: tuple[int, ...] = ()
    factor: float = 0.1
    every: int = 1000

    def __post_init__(self) -> None:
        typed_fields(self)
        kinds = ("constant", "step", "cosine", "annealed")
        known("kind", self.kind, kinds, what="schedule")
        at_least(self, 1, "steps", "every")
        at_least(self, 0, "warm_up", "freeze_backbone")
        above_zero(self, "factor")
        for step in self.milestones:
            checks.integer("milestones", step, at_least=1)
        if list(self.milestones) != sorted(set(self.milestones)):
            raise ValueError(f"milestones: expected growing steps, got {list(self.milestones)}")


@dataclass(frozen=True)
class ValidationPart:
    """The fraction of the training classes held out to choose by; 0: none. every: steps."""

    fraction: float = 0.2
    every: int = 200

    def __post_init__(self) -> None:
        typed_fields(self)
        below_one("fraction", self.fraction)
        at_least(self, 1, "every")


@dataclass(frozen=True)
class TestPart:
    """views: the embedding at test is the mean over so many augmentations; 1: the center crop.

    The model itself takes the mean over several views of a picture, wherever it is used after
    training: mirror, its mirror image too; scales, enlarged by each of these factors.
    """

    __test__ = False  # for pytest

    views: int = 1
    mirror: bool = False
    scales: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        typed_fields(self)
        at_least(self, 1, "views")
        checked_scales(self.scales)


@dataclass(frozen=True)
class Range:
    """Where a search may look: from low to high, evenly in the logarithm with `log`; or choices.

    Whole numbers at both ends: whole numbers between.

    >>> Range(low=1e-5, high=1e-2, log=True), Range(choices=[1, 2, 4]).choices
    (Range(low=1e-05, high=0.01, log=True, choices=None), (1, 2, 4))
    """

    low: int | float | None = None
    high: int | float | None = None
    log: bool = False
    choices: tuple[Any, ...] | None = None

    def __post_init__(self) -> None:
        typed_fields(self)
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
