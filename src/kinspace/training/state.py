"""The state of a training, and its conversion to a checkpoint and back.

A checkpoint holds everything the next step depends on: weights, centers, proxies and targets, the
optimizer's moments, the scale of fp16, the running average of the weights, the cluster index, and
the position in the data. Learning rates and random numbers are functions of the step and of the
seed, and are not stored. A resumed run therefore takes the same steps as one that never stopped.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from kinspace.clustering import ClusterIndex
from kinspace.objective import Objective
from kinspace.samplers import BatchSampler
from kinspace.training.log import LossWindow
from kinspace.training.samples import SampleOptions
from kinspace.training.step import Precision

__all__ = ["Best", "Loader", "State", "WeightAverage", "from_checkpoint", "to_checkpoint"]


class Loader(Protocol):
    """A loader of `kinspace.data.dataloader`: yields an epoch of batches, and can be resumed."""

    def __iter__(self) -> Any:
        """(inputs, labels, indices) on the device."""

    def state_dict(self) -> dict[str, int]:
        """The position in the data."""

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue at this position."""


@dataclass(frozen=True)
class Best:
    """The best validation so far."""

    step: int = 0
    recall: float = -1.0


class WeightAverage:
    """The exponential moving average of a model's weights.

    average <- decay * average + (1 - decay) * weights. In the first steps the decay is smaller,
    (1 + step) / (10 + step), so that the first weights do not dominate.

    >>> layer = nn.Linear(1, 1)
    >>> average = WeightAverage(layer, 0.9)
    >>> average.update(layer, step=0)
    >>> bool(average.model.weight == layer.weight)
    True
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.model = copy.deepcopy(model).requires_grad_(False)
        self.decay = decay

    @torch.no_grad()
    def update(self, model: nn.Module, *, step: int) -> None:
        """Add the weights after a step."""
        share = 1 - min(self.decay, (1 + step) / (10 + step))
        own, others = self.model.state_dict(), model.state_dict()
        frozen = {n for n, value in model.named_parameters() if not value.requires_grad}
        own = {name: value for name, value in own.items() if name not in frozen}
        floating = [name for name, value in own.items() if value.is_floating_point()]
        torch._foreach_lerp_([own[n] for n in floating], [others[n] for n in floating], share)
        for name in own.keys() - set(floating):
            own[name].copy_(others[name])


@dataclass
class State:
    """A training between two steps."""

    model: nn.Module
    objective: Objective
    optimizer: torch.optim.Optimizer
    precision: Precision
    sampler: BatchSampler
    loader: Loader
    index: ClusterIndex | None = None
    average: WeightAverage | None = None
    compiled: nn.Module | None = None  # the same model through torch.compile or CUDA graphs
    step: int = 0
    best: Best = field(default_factory=Best)
    window: LossWindow = field(default_factory=LossWindow)  # the losses since the last row
    memory: dict[str, Any] = field(default_factory=dict)  # of the diagnostics
    samples: SampleOptions | None = None

    @property
    def eval_model(self) -> nn.Module:
        """The model to evaluate: the moving average of the weights, if there is one."""
        return self.model if self.average is None else self.average.model

    @property
    def at_epoch_start(self) -> bool:
        """Whether the next batch is the first of an epoch."""
        return bool(self.sampler.state_dict()["done"] == 0)


def to_checkpoint(state: State) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The state as tensors by name, and the rest as JSON's types."""
    tensors = {f"model.{name}": value for name, value in state.model.state_dict().items()}
    tensors |= {f"objective.{name}": value for name, value in state.objective.state_dict().items()}
    for number, parameter in enumerate(_parameters(state.optimizer)):
        for name, value in state.optimizer.state.get(parameter, {}).items():
            if isinstance(value, Tensor):
                tensors[f"optimizer.{number}.{name}"] = value
    if state.average is not None:
        averages = state.average.model.state_dict()
        tensors |= {f"average.{name}": value for name, value in averages.items()}
    rest: dict[str, Any] = {
        "step": state.step,
        "best": {"step": state.best.step, "recall": state.best.recall},
        "sampler": state.sampler.state_dict(),
        "loader": state.loader.state_dict(),
        "scaler": state.precision.scaler.state_dict(),
        "window": state.window.state_dict(),
        "memory": state.memory,
    }
    if state.index is not None:
        numbers = {}
        for name, value in state.index.state_dict().items():
            if isinstance(value, Tensor):
                tensors[f"index.{name}"] = value
            else:
                numbers[name] = value
        rest["index"] = numbers
    return tensors, rest


def from_checkpoint(
    state: State, tensors: Mapping[str, Tensor], rest: Mapping[str, Any], device: torch.device
) -> None:
    """Load a checkpoint into a state that was built as at the start of the run."""
    state.model.load_state_dict(_under("model.", tensors))
    state.objective.load_state_dict(_under("objective.", tensors))
    moments: dict[int, dict[str, Tensor]] = {}
    parameters = _parameters(state.optimizer)
    for name, value in _under("optimizer.", tensors).items():
        place, _, key = name.partition(".")
        moments.setdefault(int(place), {})[key] = _laid_out_as(parameters[int(place)], value)
    # load_state_dict puts each value on the right device, such as the step count of a fused Adam
    groups = state.optimizer.state_dict()["param_groups"]
    state.optimizer.load_state_dict({"state": moments, "param_groups": groups})
    if state.average is not None:
        state.average.model.load_state_dict(_under("average.", tensors))
    state.precision.scaler.load_state_dict(dict(rest["scaler"]))
    if state.index is not None:
        of_index = {
            k: v if k == "losses" else v.to(device) for k, v in _under("index.", tensors).items()
        }
        state.index.load_state_dict({**of_index, **rest["index"]})
    state.sampler.load_state_dict(rest["sampler"])
    state.loader.load_state_dict(rest["loader"])
    state.step, state.best = rest["step"], Best(**rest["best"])
    state.window.load_state_dict(rest.get("window", []))
    state.memory = dict(rest.get("memory", {}))


def _parameters(optimizer: torch.optim.Optimizer) -> list[Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _laid_out_as(parameter: Tensor, value: Tensor) -> Tensor:
    """In the memory format of the weight (channels last or not): a fused optimizer requires it."""
    if value.shape != parameter.shape:
        return value
    return torch.empty_like(parameter, dtype=value.dtype).copy_(value)


def _under(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): value for n, value in tensors.items() if n.startswith(prefix)}
