"""How to run a recipe: what belongs to the machine and the run, not to the method."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.distributed as dist

from kinspace._core import checks
from kinspace.distributed import barrier
from kinspace.training.step import PRECISIONS

__all__ = [
    "RunSettings",
    "barrier",
    "main_process",
    "run_settings",
    "said_by_main",
    "start_processes",
]

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
        name = self.device or ("cuda" if torch.cuda.is_available() else "cpu")
        try:
            device = torch.device(name)
        except RuntimeError:
            raise ValueError(f"device: expected cpu, cuda or cuda:1, got {name!r}") from None
        if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
            count = torch.cuda.device_count()
            raise ValueError(f"device: expected one that is there, got {name!r}; GPUs: {count}")
        if name == "cuda":
            own = int(os.environ.get("LOCAL_RANK", torch.cuda.current_device()))
            return torch.device("cuda", own)
        return device

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


def start_processes(device: torch.device) -> bool:
    """Join the other processes where torchrun started several. Whether this call did it."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or dist.is_initialized():
        return False
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return True


def main_process() -> bool:
    """Whether this process is the one that writes files and prints."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank() == 0
    return os.environ.get("RANK", "0") == "0"


def said_by_main(text: str) -> str:
    """What the main process says, on every process."""
    if not (dist.is_available() and dist.is_initialized()):
        return text
    box = [text]
    dist.broadcast_object_list(box)
    return box[0]
