"""The optimizer: parameter groups, the schedule of their learning rates, gradient clipping.

The learning rate of a group is lr * its multiplier * the schedule's factor. The factor is a
function of the step alone, so that checkpoints hold no state of the schedule.

    constant   1
    step       factor ** (milestones at or before the step)
    cosine     (1 + cos(pi * step / steps)) / 2
    annealed   factor ** (step / every)

each multiplied with (step + 1) / warm_up in the first `warm_up` steps.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from kinspace._core import checks

__all__ = ["clip_gradients", "make_optimizer", "schedule_factor", "set_learning_rates"]

SCHEDULES = ("constant", "step", "cosine", "annealed")
OPTIMIZERS = ("sgd", "adam", "adamw")


def schedule_factor(
    step: int,
    *,
    kind: str,
    steps: int,
    warm_up: int = 0,
    milestones: Iterable[int] = (),
    factor: float = 0.1,
    every: int = 1000,
) -> float:
    """The factor of the learning rates at a step, counted from 0 (see the module's docstring).

    >>> [schedule_factor(step, kind="step", steps=9, milestones=(3, 6)) for step in (2, 3, 6)]
    [1.0, 0.1, 0.010000000000000002]
    >>> schedule_factor(5, kind="cosine", steps=10)
    0.5
    """
    checks.choice("schedule.kind", kind, SCHEDULES)
    if kind == "step":
        value = factor ** sum(step >= milestone for milestone in milestones)
    elif kind == "cosine":
        value = 0.5 * (1 + math.cos(math.pi * min(step / steps, 1)))
        value = round(value, 12)  # cos(pi/2) is not quite 0
    elif kind == "annealed":
        value = factor ** (step / every)
    else:
        value = 1.0
    return float(value * min(1.0, (step + 1) / warm_up) if warm_up else value)


def make_optimizer(
    roles: Mapping[str, list[nn.Parameter]],
    multipliers: Mapping[str, float],
    *,
    name: str,
    lr: float,
    momentum: float = 0.9,
    weight_decay: float = 0.0,
    scales: Mapping[nn.Parameter, float] | None = None,
) -> torch.optim.Optimizer:
    """An optimizer with groups for each role (backbone, head, loss, ...) that has parameters.

    Weight decay applies to the matrices of backbone and head; not to biases, norms, and the
    parameters of the loss. scales: factors of the rates of single parameters.

    >>> layer = torch.nn.Linear(2, 1)
    >>> adam = make_optimizer({"head": list(layer.parameters())}, {"head": 10.0},
    ...                       name="adamw", lr=0.001, weight_decay=0.1)
    >>> [(g["lr"], g["weight_decay"]) for g in adam.param_groups]
    [(0.01, 0.1), (0.01, 0.0)]
    """
    checks.choice("optimizer.name", name, OPTIMIZERS)
    groups: list[dict[str, Any]] = []
    for role, parameters in roles.items():
        split: dict[tuple[float, bool], list[nn.Parameter]] = {}
        for parameter in parameters:
            scale = 1.0 if scales is None else scales.get(parameter, 1.0)
            decays = parameter.ndim > 1 and role in ("backbone", "head")
            split.setdefault((scale, decays), []).append(parameter)
        for scale, decays in sorted(split, reverse=True):
            rate = lr * multipliers.get(role, 1.0) * scale
            groups.append(
                {
                    "params": split[scale, decays],
                    "lr": rate,
                    "base": rate,
                    "weight_decay": weight_decay if decays else 0.0,
                    "role": role,
                }
            )
    # fused: one kernel per group. On the CPU the plain form gives the same bits on every machine.
    fused = all(p.is_cuda for group in groups for p in group["params"])
    if name == "sgd":
        return torch.optim.SGD(groups, lr=lr, momentum=momentum, fused=fused)
    made = torch.optim.Adam if name == "adam" else torch.optim.AdamW
    return made(groups, lr=lr, betas=(momentum, 0.999), fused=fused)


def set_learning_rates(
    optimizer: torch.optim.Optimizer, factor: float, *, frozen: Iterable[str] = ()
) -> None:
    """Set the learning rate of every group for the next step; groups of frozen roles get 0."""
    frozen = set(frozen)
    for group in optimizer.param_groups:
        group["lr"] = 0.0 if group["role"] in frozen else group["base"] * factor


def clip_gradients(
    parameters: Iterable[nn.Parameter], *, norm: float | None = None, value: float | None = None
) -> None:
    """Clip each entry of the gradients to +-value, then their common norm to `norm`."""
    some = [p for p in parameters if p.grad is not None]
    if value is not None:
        nn.utils.clip_grad_value_(some, value)
    if norm is not None:
        nn.utils.clip_grad_norm_(some, norm)
