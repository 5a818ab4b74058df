"""How to run a recipe: what belongs to the machine and the run, not to the method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch

from kinspace._core import checks
from kinspace._core.device import pick_device
from kinspace.training.step import PRECISIONS

__all__ = ["RunSettings", "run_settings"]

SPLITS = ("zero_shot", "official", "stratified", "all")


@dataclass(frozen=True)
class RunSettings:
    """Options of `kinspace.train` beside the recipe.

    seed: of the split, the weights, the batches and the crops.
    device: "cpu", "cuda", "cuda:1"; by default a GPU where there is one.
    precision: "float32", "bf16" or "fp16" for the model; by default bf16 on a GPU. The loss is
        always in float32.
    micro_batch: samples that go through the model at a time, where a batch does not fit.
    cache: decoded pictures in "memory" or on the "gpu", in a folder of that name, or "none";
        "auto" looks at what is free.
    split: in place of the recipe's.
    save, log: steps from one checkpoint or row of metrics to the next.
    skip_bad: go on without pictures that cannot be read.
    baselines: judge raw pixels and the untrained backbone too, at the end.
    compile: the model through torch.compile. graphs: else, on a GPU, as CUDA graphs.

    >>> RunSettings(precision="half")
    Traceback (most recent call last):
    ValueError: precision: expected one of 'float32', 'bf16', 'fp16', got 'half'
    """

    seed: int = 0
    device: str | None = None
    precision: str | None = None
    micro_batch: int | None = None
    workers: int | None = None
    cache: str = "auto"
    split: str | None = None
    save: int = 200
    log: int = 10
    skip_bad: bool = False
    baselines: bool = True
    channels_last: bool = True
    compile: bool = False
    graphs: bool = True
    tensorboard: bool = False
    quiet: bool = False

    def __post_init__(self) -> None:
        checks.integer("seed", self.seed, at_least=0)
        checks.integer("save", self.save, at_least=1)
        checks.integer("log", self.log, at_least=1)
        if self.micro_batch is not None:
            checks.integer("micro_batch", self.micro_batch, at_least=1)
        if self.workers is not None:
            checks.integer("workers", self.workers, at_least=0)
        if self.precision is not None:
            checks.choice("precision", self.precision, PRECISIONS)
        if self.split is not None:
            checks.choice("split", self.split, SPLITS)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)

    def on_device(self) -> torch.device:
        """The device of this process."""
        return pick_device(self.device)

    def in_precision(self, device: torch.device) -> str:
        """The precision of the model on a device."""
        return self.precision or ("bf16" if device.type == "cuda" else "float32")


def run_settings(given: Mapping[str, Any]) -> RunSettings:
    """The settings by name, as `kinspace.train` takes them.

    >>> run_settings({"sed": 1})
    Traceback (most recent call last):
    ValueError: unknown option 'sed'; did you mean 'seed'? choose from: baselines, ...
    """
    for name in given:
        checks.lookup("option", name, RunSettings.__dataclass_fields__)
    return RunSettings(**given)
