"""Trainings that take a tenth of a second: a few small pictures or vectors, in this process."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import kinspace
from kinspace.data import Dataset, from_arrays
from kinspace.run import Run

NET = {"model.options": {"width": 4, "size": 16}, "model.dim": 8}
QUICK: dict[str, Any] = {
    **NET,
    "transform.size": 16,
    "transform.resize": 18,
    "schedule.steps": 6,
    "validation.every": 3,
    "sampler.classes": 3,
    "sampler.samples": 4,
}
OPTIONS: dict[str, Any] = {"device": "cpu", "quiet": True, "workers": 1, "cache": "memory"}


def pictures(classes: int = 8, each: int = 6, size: int = 16) -> Dataset:
    """Classes that differ in their pattern, pictures that differ in noise."""
    rng = np.random.default_rng(0)
    patterns = 128 + rng.integers(-25, 26, (classes, 1, size, size, 3))
    noise = rng.integers(-90, 91, (classes, each, size, size, 3))  # louder: recalls below 1
    images = (patterns + noise).clip(0, 255).astype(np.uint8)
    return from_arrays(images.reshape(-1, size, size, 3), np.repeat(np.arange(classes), each))


def vectors(classes: int = 12, each: int = 10, dim: int = 6, spread: float = 1.0) -> TensorDataset:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(classes * each) % classes
    centers = torch.randn(classes, dim, generator=generator)
    noise = spread * torch.randn(len(labels), dim, generator=generator)
    return TensorDataset(centers[labels] + noise, labels)


class Net(nn.Module):
    """A linear layer that may do something odd in its n-th training pass."""

    def __init__(self, dim: int = 6, out: int = 5) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, out)
        self.passes = 0

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.linear(x)
        if self.training:
            self.passes += 1
            y = self.odd(y)
        return y

    def odd(self, y: Tensor) -> Tensor:
        return y


def net(made: type[Net] = Net, **options: Any) -> Net:
    torch.manual_seed(3)
    return made(**options)


def trained(out: Path, data: Any = None, method: Any = "contrastive", **options: Any) -> Run:
    """A training on the pictures with quick settings; `changes` are added to them."""
    changes = QUICK | options.pop("changes", {})
    changes = {key: value for key, value in changes.items() if value is not None}
    if data is None:
        data = pictures()
    return kinspace.train(
        data, method=method, changes=changes, out=out, **{**OPTIONS, "log_every": 1, **options}
    )


def trained_net(out: Path, model: nn.Module, method: str = "contrastive", **options: Any) -> Run:
    """A training of a plain module on the vectors."""
    changes = {"schedule.steps": 8, "validation.every": 100, "warm_start.steps": 0}
    changes |= options.pop("changes", {})
    data = options.pop("data", None)
    if data is None:
        data = vectors()
    return kinspace.train(
        data,
        model=model,
        method=method,
        changes=changes,
        out=out,
        **{**OPTIONS, "log_every": 1, **options},
    )


def losses(run: Run) -> list[float]:
    return [row["loss"] for row in run.metrics if "loss" in row]
