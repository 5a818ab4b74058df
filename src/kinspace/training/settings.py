"""How a recipe is run: the settings of the machine and of the run, not of the method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch

from kinspace._core import checks
from kinspace._core.device import pick_device
from kinspace.data.named_splits import SPLITS
from kinspace.training.step import PRECISIONS

__all__ = ["RunSettings"]


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """The options of `kinspace.train` beside the recipe; `kinspace.train` describes each.

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
    save_every: int = 200
    log_every: int = 10
    keep_every: int | None = None
    skip_bad: bool = False
    columns: Mapping[str, str] | None = None
    allow_outside: bool = False
    baselines: bool = True
    channels_last: bool = True
    compile: bool = False
    cuda_graphs: bool = True
    tensorboard: bool = False
    quiet: bool = False

    def __post_init__(self) -> None:
        checks.integer("seed", self.seed, at_least=0)
        checks.integer("save_every", self.save_every, at_least=1)
        checks.integer("log_every", self.log_every, at_least=1)
        for name, least in (("keep_every", 1), ("micro_batch", 1), ("workers", 0)):
            if getattr(self, name) is not None:
                checks.integer(name, getattr(self, name), at_least=least)
        if self.precision is not None:
            checks.choice("precision", self.precision, PRECISIONS)
        if self.split is not None:
            checks.choice("split", self.split, SPLITS)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> RunSettings:
        """The settings in a run.json; keys of other versions are ignored.

        >>> RunSettings.from_dict({"seed": 3, "of_another_version": 1}).seed
        3
        """
        return cls(**{f.name: values[f.name] for f in fields(cls) if f.name in values})

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)

    def on_device(self) -> torch.device:
        """The device of this process."""
        return pick_device(self.device)

    def in_precision(self, device: torch.device) -> str:
        """The precision of the model on a device."""
        return self.precision or ("bf16" if device.type == "cuda" else "float32")
